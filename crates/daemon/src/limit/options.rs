//! Settings of the limits.

use headwater_proto::limits::MESSAGE_BYTES_MAX;

use super::bytes::FRAME_BYTES;

/// How much callers may ask for.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct LimitOptions {
    /// Most calls of all callers under way at a time, open streams included.
    /// More are refused at once.
    #[arg(long, default_value_t = 16_384, env = "HEADWATER_REQUESTS_MAX")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub requests_max: u64,
    /// Most calls of one caller under way at a time. A caller is who it proved
    /// to be; where nobody has to prove anything, an address.
    #[arg(long, default_value_t = 4_096, env = "HEADWATER_CALLER_REQUESTS_MAX")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub caller_requests_max: u64,
    /// Most calls of one caller a second; as many may come at once. 0: no
    /// limit. A row of the file of rights may say another for itself.
    #[arg(long, default_value_t = 0, env = "HEADWATER_CALLER_REQUESTS_PER_SECOND_MAX")]
    pub caller_requests_per_second_max: u32,
    /// Most bytes of requests that are received and not answered, of all
    /// callers together. 256 MiB are 32 of the largest. One caller holds at
    /// most a quarter of it, or one request of the largest. Of a stream of
    /// operations the message that is arriving counts; what was handed over has
    /// the limits of the writer's queues.
    #[arg(long, default_value_t = 256 << 20, env = "HEADWATER_REQUEST_BYTES_MAX")]
    #[arg(value_parser = clap::value_parser!(u64).range(1 << 20..))]
    pub request_bytes_max: u64,
    /// Most bytes of answers that are made and that their callers have not
    /// taken, of all callers together; one caller holds at most a quarter of it,
    /// or one answer of the largest. Reads whose answer is over it are refused,
    /// and streams of answers wait.
    #[arg(long, default_value_t = 256 << 20, env = "HEADWATER_ANSWER_BYTES_MAX")]
    #[arg(value_parser = clap::value_parser!(u64).range(1 << 20..))]
    pub answer_bytes_max: u64,
    /// Longest time for one request to arrive whole, in milliseconds; of a
    /// stream, for each of its messages. A caller that sends a byte now and then
    /// is cut off.
    #[arg(long, default_value_t = 30_000, env = "HEADWATER_REQUEST_ARRIVAL_MS_MAX")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub request_arrival_ms_max: u64,
}

impl Default for LimitOptions {
    fn default() -> Self {
        Self {
            requests_max: 16_384,
            caller_requests_max: 4_096,
            caller_requests_per_second_max: 0,
            request_bytes_max: 256 << 20,
            answer_bytes_max: 256 << 20,
            request_arrival_ms_max: 30_000,
        }
    }
}

impl LimitOptions {
    /// Most bytes of requests.
    pub(super) fn request_bytes(&self) -> Most {
        Most::of(self.request_bytes_max)
    }

    /// Most bytes of answers.
    pub(super) fn answer_bytes(&self) -> Most {
        Most::of(self.answer_bytes_max)
    }

    pub(super) fn rate(&self) -> Option<u32> {
        Some(self.caller_requests_per_second_max).filter(|it| *it != 0)
    }
}

/// Most bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) of_all: u64,
    /// The part of one caller: a quarter, and enough for one message where the
    /// whole allows that.
    pub(super) of_caller: u64,
}

impl Most {
    pub(super) fn of(of_all: u64) -> Self {
        /// With the prefix of gRPC, and what a frame takes beside.
        const LARGEST: u64 = MESSAGE_BYTES_MAX as u64 + 5 + FRAME_BYTES;
        Self { of_all, of_caller: (of_all / 4).max(LARGEST.min(of_all)) }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        limits: LimitOptions,
    }

    #[test]
    fn defaults_are_the_same_in_both_places() {
        assert_eq!(Arguments::parse_from(["x"]).limits, LimitOptions::default());
        assert!(Arguments::try_parse_from(["x", "--requests-max", "0"]).is_err());
    }
}
