//! From a load to requests: how the writer batches, what maintenance adds, what
//! replicas ask.
//!
//! Averages for one history with one writer, over hours of an even load. A test
//! compares them with what the real writer and replica send in virtual time.

use headwater_replica::ReplicaConfig;
use headwater_writer::WriterConfig;

/// A load, and the settings that its cost depends on.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) operations_per_second: f64,
    pub(crate) value_bytes: f64,
    /// Operations whose issue version the service keeps.
    pub(crate) is_service_kept: bool,
    pub(crate) replicas: f64,
    /// Strong reads a second of each replica.
    pub(crate) strong_reads_per_second: f64,
    /// Replicas are told of new heads by the writer.
    pub(crate) is_pushed: bool,
    /// Keys and values of the history.
    pub(crate) state_bytes: f64,
    pub(crate) write_seconds: f64,
    pub(crate) read_seconds: f64,
    pub(crate) head_interval_seconds: f64,
    pub(crate) writer: WriterConfig,
    pub(crate) replica: ReplicaConfig,
}

/// What goes to the store: requests and bytes a second, or in all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// PUT, COPY, POST, LIST.
    pub(crate) puts: f64,
    pub(crate) gets: f64,
    pub(crate) deletes: f64,
    pub(crate) up_bytes: f64,
    pub(crate) down_bytes: f64,
}

/// The parts of a bill, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Parts {
    /// Replacements, uploads, request records.
    pub(crate) commits: Usage,
    /// Folds and snapshots.
    pub(crate) upkeep: Usage,
    /// All replicas together.
    pub(crate) replicas: Usage,
}

/// What an operation takes in a change entry beside its key and value: id, hash,
/// lengths.
const OPERATION_BYTES: f64 = 110.0;
/// What a receipt takes in a page.
const RECEIPT_BYTES: f64 = 90.0;
/// Where a page ends.
const RECEIPT_PAGE_BYTES: f64 = 1_048_576.0;
/// A head without changes and segments.
const HEAD_BYTES: f64 = 1_000.0;
/// One reference of a head, and what an inline entry takes beside its bytes.
const REFERENCE_BYTES: f64 = 230.0;
const INLINE_BYTES: f64 = 110.0;
/// A chunk of a snapshot, before it is compressed, on average.
const CHUNK_BYTES: f64 = 1_048_576.0;
/// References to segments that a head holds before a snapshot is made: a
/// quarter of its soft limit, at 256 bytes each.
const SEGMENTS_PART: usize = 4 * 256;
/// Past this size on average changes are not copied into segments.
const FOLD_CHANGE_BYTES_MAX: f64 = 65_536.0;

/// How operations become batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Batching {
    /// Replacements of the head a second; each is a version, or a few.
    pub(crate) replacements: f64,
    /// Batches a second that are uploaded, because they are too large to travel
    /// in the head.
    pub(crate) uploads: f64,
    /// Bytes of one batch.
    pub(crate) batch_bytes: f64,
}

impl Batching {
    /// How many of the batches are uploaded.
    fn large_share(&self) -> f64 {
        if self.replacements <= 0.0 { 0.0 } else { (self.uploads / self.replacements).min(1.0) }
    }

    /// Whether changes are small enough to be copied into segments.
    fn is_folded(&self) -> bool {
        self.batch_bytes <= FOLD_CHANGE_BYTES_MAX
    }
}

impl Load {
    fn operation_bytes(&self) -> f64 {
        self.value_bytes + OPERATION_BYTES
    }

    /// One replacement is in flight at a time, for a round trip or the rest that
    /// the store wants. What arrives meanwhile is the next batch; what arrives
    /// after a silence goes at once.
    pub(crate) fn batching(&self) -> Batching {
        let rate = self.operations_per_second;
        if rate <= 0.0 {
            return Batching { replacements: 0.0, uploads: 0.0, batch_bytes: 0.0 };
        }
        let inline_max = count(self.writer.inline_bytes_max);
        let busy = self.write_seconds.max(self.head_interval_seconds);
        // Not while anything is in flight: the wait for the first one.
        let silence = (-rate * busy).exp() / rate;
        let replacements = 1.0 / (busy + silence);
        let batch_operations = rate / replacements;
        let batch_bytes = batch_operations * self.operation_bytes();
        let is_large = share_above(batch_operations, inline_max / self.operation_bytes());
        let by_operations = batch_operations / count(self.writer.batch_operations_max);
        let by_bytes = batch_bytes / count(self.writer.batch_bytes_max);
        let pieces = by_operations.max(by_bytes).ceil().max(1.0);
        Batching {
            replacements,
            uploads: replacements * is_large * pieces,
            batch_bytes: batch_bytes / pieces,
        }
    }

    /// What the store is asked, a second.
    pub(crate) fn parts(&self) -> Parts {
        let batching = self.batching();
        Parts {
            commits: self.commits(&batching),
            upkeep: self.upkeep(&batching),
            replicas: self.follow(&batching),
        }
    }

    fn commits(&self, batching: &Batching) -> Usage {
        let records = if self.is_service_kept { self.operations_per_second } else { 0.0 };
        let uploaded_bytes = batching.uploads * batching.batch_bytes;
        let record_bytes = records * (self.operation_bytes() + 100.0);
        // In the head too, once, in base64.
        let travelling_bytes =
            if self.does_travel(batching) { uploaded_bytes * 4.0 / 3.0 } else { 0.0 };
        Usage {
            puts: batching.replacements + batching.uploads + records,
            up_bytes: batching.replacements * self.head_bytes(batching)
                + uploaded_bytes
                + travelling_bytes
                + record_bytes,
            ..Usage::default()
        }
    }

    /// Whether what is uploaded is in the head as well meanwhile. Not where a
    /// record is waited for, or where the store wants a rest, in which it is
    /// uploaded.
    fn does_travel(&self, batching: &Batching) -> bool {
        batching.batch_bytes <= count(self.writer.beside_bytes_max)
            && !self.is_service_kept
            && self.head_interval_seconds <= self.write_seconds
    }

    /// Bytes that a change takes of the head.
    fn change_head_bytes(&self, batching: &Batching) -> f64 {
        let inline_share = 1.0 - batching.large_share();
        let inline_bytes = batching.batch_bytes.min(count(self.writer.inline_bytes_max));
        inline_share * (inline_bytes * 4.0 / 3.0 + INLINE_BYTES)
            + (1.0 - inline_share) * REFERENCE_BYTES
    }

    /// Changes that the head names one by one before they move to a segment; so
    /// many that it reaches half of its soft limit, if that is fewer.
    fn fold_changes(&self, batching: &Batching) -> f64 {
        let room = count(self.writer.head_soft_bytes) / 2.0 - HEAD_BYTES;
        (room / self.change_head_bytes(batching)).clamp(2.0, count(self.writer.fold_changes))
    }

    /// On average: half of what is folded next, and half of the segments.
    fn head_bytes(&self, batching: &Batching) -> f64 {
        let folded = self.fold_changes(batching);
        let segments = if batching.is_folded() {
            // A snapshot is published only after some more versions.
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let kept = self.writer.compact_keep_versions as f64;
            (self.snapshot_versions(batching) + kept) / folded
        } else {
            0.0
        };
        HEAD_BYTES
            + folded / 2.0 * self.change_head_bytes(batching)
            + segments / 2.0 * REFERENCE_BYTES
    }

    /// Versions between two snapshots.
    fn snapshot_versions(&self, batching: &Batching) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let (versions, bytes) =
            (self.writer.compact_tail_versions as f64, self.writer.compact_tail_bytes as f64);
        let by_bytes = bytes / batching.batch_bytes.max(1.0);
        let segments = count(self.writer.head_soft_bytes / SEGMENTS_PART);
        let by_segments = if batching.is_folded() {
            segments * self.fold_changes(batching)
        } else {
            f64::INFINITY
        };
        versions.min(by_bytes).min(by_segments)
    }

    fn upkeep(&self, batching: &Batching) -> Usage {
        let versions = batching.replacements.max(batching.uploads);
        if versions <= 0.0 {
            return Usage::default();
        }
        let mut usage = Usage::default();
        let change_bytes = self.operations_per_second * self.operation_bytes();
        if batching.is_folded() {
            // Changes that are no longer at hand are read again.
            usage.puts += versions / self.fold_changes(batching);
            usage.gets += batching.uploads;
            usage.up_bytes += change_bytes;
            usage.down_bytes += batching.uploads * batching.batch_bytes;
        }
        let snapshots = versions / self.snapshot_versions(batching);
        let operations = self.operations_per_second / snapshots;
        // Keys spread evenly: a chunk with a key that changed is read and
        // written again. Half of their bytes are left when compressed.
        let chunks = (self.state_bytes / CHUNK_BYTES).max(1.0);
        let written = chunks * (1.0 - (-operations / chunks).exp());
        let pages = (operations * RECEIPT_BYTES / RECEIPT_PAGE_BYTES).max(1.0).ceil();
        usage.puts += snapshots * (1.0 + written + pages);
        usage.gets += snapshots * (1.0 + written);
        usage.up_bytes += snapshots * (written * CHUNK_BYTES / 2.0 + operations * RECEIPT_BYTES);
        usage.down_bytes += snapshots * written * CHUNK_BYTES / 2.0;
        // What was overtaken is swept in the end.
        usage.deletes += usage.puts + batching.uploads;
        usage
    }

    /// Freshness checks of one replica, a second.
    fn checks(&self) -> f64 {
        let shared = count(self.replica.checks_in_flight_max) / self.read_seconds;
        let polls = if self.replica.poll_ms == 0 {
            0.0
        } else {
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let poll_ms = self.replica.poll_ms as f64;
            1_000.0 / poll_ms
        };
        let strong = self.strong_reads_per_second.min(shared);
        // A check of any kind puts the next poll off.
        polls.max(strong)
    }

    /// What a replica fetches that is told of each head: nothing but what is too
    /// large to be told, and what a check finds before it is told of it.
    fn follow_pushed(&self, batching: &Batching, checks: f64) -> Usage {
        let is_told = batching.batch_bytes <= count(headwater_writer::PUSHED_BYTES_MAX);
        let fetched = if is_told { 0.0 } else { batching.uploads };
        let on_the_way = (batching.replacements * self.write_seconds / 2.0).min(1.0);
        let uploaded_bytes = fetched * batching.batch_bytes;
        Usage {
            gets: checks + fetched,
            down_bytes: checks * on_the_way * self.head_bytes(batching) + uploaded_bytes,
            ..Usage::default()
        }
    }

    fn follow(&self, batching: &Batching) -> Usage {
        let checks = self.checks();
        if checks <= 0.0 || self.replicas <= 0.0 {
            return Usage::default();
        }
        if self.is_pushed {
            return self.follow_pushed(batching, checks).times(self.replicas);
        }
        let heads_for_check = batching.replacements / checks;
        let changed = checks * (1.0 - (-heads_for_check).exp());
        // Since the last check: in segments as far as it was folded meanwhile.
        let folded = self.fold_changes(batching);
        let is_slow = batching.is_folded() && folded < heads_for_check;
        let fetched = if is_slow {
            let share = batching.large_share();
            checks * (heads_for_check / folded + folded / 2.0 * share)
        } else {
            // The last one travels in the head that is read, and mostly the one
            // before it still does.
            let at_hand = if self.does_travel(batching) { changed * 2.0 } else { 0.0 };
            (batching.uploads - at_hand).max(0.0)
        };
        // A change that moved to a segment before it was seen is found there, in
        // company. Who sees every head sees it before.
        let unseen = (1.0 - 1.0 / heads_for_check.max(1.0)).max(0.0);
        let folds = if batching.is_folded() { batching.replacements / folded } else { 0.0 };
        let segments = if is_slow { 0.0 } else { folds.min(checks) * unseen };
        let change_bytes = self.operations_per_second * self.operation_bytes();
        let uploaded_bytes = change_bytes * batching.large_share();
        let segment_bytes = segments * folded * batching.batch_bytes;
        let one = Usage {
            gets: checks + fetched + segments,
            down_bytes: changed * self.head_bytes(batching) + uploaded_bytes + segment_bytes,
            ..Usage::default()
        };
        one.times(self.replicas)
    }
}

impl Usage {
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            puts: self.puts * factor,
            gets: self.gets * factor,
            deletes: self.deletes * factor,
            up_bytes: self.up_bytes * factor,
            down_bytes: self.down_bytes * factor,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            puts: self.puts + other.puts,
            gets: self.gets + other.gets,
            deletes: self.deletes + other.deletes,
            up_bytes: self.up_bytes + other.up_bytes,
            down_bytes: self.down_bytes + other.down_bytes,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

/// How often a batch has more than `limit` operations, if it has `mean` on
/// average: one to begin with, and as many more as chance brings.
fn share_above(mean: f64, limit: f64) -> f64 {
    let more = (mean - 1.0).max(0.0);
    if limit < 1.0 {
        return 1.0;
    }
    let deviation = more.sqrt();
    if limit + 6.0 * deviation < mean {
        return 1.0;
    }
    if mean + 6.0 * deviation + 1.0 < limit {
        return 0.0;
    }
    // The terms of a Poisson distribution up to the limit. 4,096 operations
    // are the most that a batch can have.
    let (mut term, mut sum, mut n) = (-more, 0.0, 0.0);
    while n + 1.0 <= limit && n < 8_192.0 {
        sum += f64::exp(term);
        n += 1.0;
        term += more.max(f64::MIN_POSITIVE).ln() - n.ln();
    }
    (1.0 - sum).clamp(0.0, 1.0)
}

#[cfg(test)]
#[path = "model_test.rs"]
mod tests;
