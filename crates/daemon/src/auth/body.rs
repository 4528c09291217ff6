//! The bodies of calls that were let in.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use headwater_proto::limits::MESSAGE_BYTES_MAX;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;

use super::methods::OPEN_REQUEST_BYTES_MAX;
use crate::limit::{Charge, Permit};
use crate::status;

/// Flag and length of a gRPC message.
const PREFIX_BYTES: usize = 5;

/// A request on its way in: its messages are looked at for their length before
/// anything of them is kept, and a single one has to arrive in time and to be
/// single.
pub(super) struct Arriving {
    inner: Body,
    lengths: Lengths,
    single: Option<Single>,
}

/// What holds of a request of one message. Gone once it has arrived, and its
/// charge with it where nobody else holds that.
struct Single {
    charge: Option<Arc<Charge>>,
    received: usize,
    /// Most bytes of the whole body: what comes after the message is read and
    /// thrown away by the services, and would come for ever.
    bytes_max: usize,
    late: Pin<Box<Sleep>>,
    time: Duration,
}

impl Single {
    fn receive(&mut self, len: usize) -> Result<(), Status> {
        self.received = self.received.saturating_add(len);
        if self.bytes_max < self.received {
            return Err(status::message_too_large(self.received, self.bytes_max));
        }
        self.charge.as_ref().map_or(Ok(()), |it| it.add(len as u64))
    }
}

impl Arriving {
    /// Of a stream of messages.
    pub(super) fn many(inner: Body) -> Self {
        Self { inner, lengths: Lengths::of(MESSAGE_BYTES_MAX), single: None }
    }

    /// Of one message, which counts towards `charge` and has `time` to arrive.
    pub(super) fn one(inner: Body, charge: Arc<Charge>, time: Duration) -> Self {
        Self::single(inner, Some(charge), MESSAGE_BYTES_MAX + PREFIX_BYTES, time)
    }

    /// Of one message of somebody unknown: small, so that it counts towards
    /// nothing that others need.
    pub(super) fn open(inner: Body, time: Duration) -> Self {
        Self::single(inner, None, OPEN_REQUEST_BYTES_MAX, time)
    }

    fn single(inner: Body, charge: Option<Arc<Charge>>, bytes_max: usize, time: Duration) -> Self {
        let lengths = Lengths::of(bytes_max - PREFIX_BYTES);
        let single = Single { charge, received: 0, bytes_max, late: Box::pin(sleep(time)), time };
        Self { inner, lengths, single: Some(single) }
    }

    fn check(&mut self, data: &Bytes) -> Result<(), Status> {
        self.lengths.look(data)?;
        self.single.as_mut().map_or(Ok(()), |it| it.receive(data.len()))
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        // First: who sends a byte now and then would always have one ready.
        if let Some(single) = &mut self.single
            && single.late.as_mut().poll(cx).is_ready()
        {
            let ms = single.time.as_millis();
            let late = status::expired(&format!("the request took over {ms} ms to arrive"));
            return Poll::Ready(Some(Err(late)));
        }
        let next = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(Ok(frame)) = &next
            && let Some(data) = frame.data_ref()
        {
            let data = data.clone();
            if let Err(refused) = self.check(&data) {
                return Poll::Ready(Some(Err(refused)));
            }
        }
        if next.is_none() {
            self.single = None;
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Follows the length prefixes of gRPC messages: a flag and four bytes.
#[derive(Debug)]
struct Lengths {
    /// Most bytes of a message.
    max: usize,
    prefix: [u8; PREFIX_BYTES],
    filled: usize,
    /// Bytes of the message that are still to come.
    left: usize,
}

impl Lengths {
    fn of(max: usize) -> Self {
        Self { max, prefix: [0; PREFIX_BYTES], filled: 0, left: 0 }
    }

    fn look(&mut self, mut data: &[u8]) -> Result<(), Status> {
        while !data.is_empty() {
            if self.left != 0 {
                let skipped = self.left.min(data.len());
                self.left -= skipped;
                data = &data[skipped..];
                continue;
            }
            let taken = (self.prefix.len() - self.filled).min(data.len());
            self.prefix[self.filled..self.filled + taken].copy_from_slice(&data[..taken]);
            self.filled += taken;
            data = &data[taken..];
            if self.filled == self.prefix.len() {
                let [_, len @ ..] = self.prefix;
                (self.filled, self.left) = (0, u32::from_be_bytes(len) as usize);
                if self.max < self.left {
                    return Err(status::message_too_large(self.left, self.max));
                }
            }
        }
        Ok(())
    }
}

/// An answer on its way out. Holds what the call counts towards.
pub(super) struct Answering {
    inner: Body,
    held: Option<Held>,
    /// Done once the caller's rights are others than when it was let in.
    changed: Option<BoxFuture<'static, ()>>,
}

/// What is given back when the answer is finished or dropped.
pub(super) struct Held {
    pub(super) permit: Permit,
    pub(super) charge: Option<Arc<Charge>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("permit", &self.permit).field("charge", &self.charge).finish()
    }
}

impl Answering {
    pub(super) fn new(inner: Body, held: Held, changed: Option<BoxFuture<'static, ()>>) -> Self {
        Self { inner, held: Some(held), changed }
    }

    fn finish(&mut self) {
        (self.held, self.changed) = (None, None);
    }
}

impl HttpBody for Answering {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Some(changed) = &mut self.changed
            && changed.as_mut().poll(cx).is_ready()
        {
            self.finish();
            self.inner = Body::empty();
            let mut trailers = http::HeaderMap::new();
            status::rights_changed().add_header(&mut trailers)?;
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        let next = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let is_last = match &next {
            None | Some(Err(_)) => true,
            Some(Ok(frame)) => frame.is_trailers(),
        };
        if is_last {
            self.finish();
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // A call that its caller's rights end has more to say than the service
        // has.
        if self.changed.is_some() { SizeHint::default() } else { self.inner.size_hint() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(len: usize) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(len).unwrap().to_be_bytes());
        bytes.resize(5 + len, 7);
        bytes
    }

    #[test]
    fn lengths_are_found_however_the_bytes_are_cut() {
        let mut stream = [message(0), message(300), message(3)].concat();
        stream.extend(&message(MESSAGE_BYTES_MAX + 1)[..5]);
        for cut in [1, 2, 3, 5, 7, 100, stream.len()] {
            let mut lengths = Lengths::of(MESSAGE_BYTES_MAX);
            let mut pieces = stream.chunks(cut).map(|it| lengths.look(it));
            let refused = pieces.find_map(Result::err).expect("the last one is refused");
            assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
            assert_eq!(pieces.count(), 0, "it is refused when its length is known, not before");
        }
        let mut lengths = Lengths::of(MESSAGE_BYTES_MAX);
        assert!(lengths.look(&message(MESSAGE_BYTES_MAX)).is_ok());
    }
}
