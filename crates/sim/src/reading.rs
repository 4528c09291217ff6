//! How clients read.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use headwater_core::operation::KeyRange;
use headwater_core::version::StateVersion;
use headwater_replica::{ChangeRange, Consistency, Pinned, ReadFailure, Reader};
use headwater_state::Scan;
use tokio::time::{Instant, timeout};

use crate::client::Client;
use crate::requests;
use crate::truth::{Asked, Found, Page, Row};

/// How long a replica may take.
const READ_MAX: Duration = Duration::from_secs(10);

impl Client {
    pub(crate) async fn read(&mut self) {
        let mix = self.world.plan.mix;
        let n_writers = self.world.plan.writers.len();
        let replica = n_writers + self.dice.index(self.world.plan.replicas.len());
        let consistency = self.draw_consistency();
        if !self.dice.percent(mix.long_reads) {
            self.read_key(replica, consistency).await;
        } else if self.dice.percent(50) {
            let range = requests::draw_range(&self.dice, &mix);
            let page = self.dice.pick(&[1, 7, 1_000]);
            self.read_range(replica, consistency, range, page).await;
        } else {
            self.read_changes(replica, consistency).await;
        }
    }

    fn asked(&self, consistency: Consistency, what: fmt::Arguments<'_>) -> Asked {
        let sent = self
            .world
            .trace
            .event(format_args!("client {}: reads {what} {consistency:?}", self.index));
        let sent_at = self.world.elapsed();
        Asked { head_key: self.head_key.clone(), consistency, sent, sent_at }
    }

    async fn read_key(&mut self, replica: usize, consistency: Consistency) {
        let key = requests::draw_key(&self.dice, &self.world.plan.mix);
        let asked = self.asked(consistency, format_args!("{key}"));
        let wanted = key.clone();
        let read = self.call_replica(replica, move |reader, deadline| {
            let key = wanted.clone();
            async move {
                let (entry, pinned) = reader.get(&key, consistency, deadline).await?;
                Ok(found(&pinned, entry.map(|it| (it.value, it.version.get()))))
            }
            .boxed()
        });
        let Some(read) = read.await else { return };
        let answered = self.answered(&read);
        let mut truth = self.world.truth();
        match &read {
            Ok(found) => truth.read_key(&asked, answered, &key, found),
            Err(failure) => truth.read_failed(&asked, answered, failure),
        }
        drop(truth);
        self.note(&read);
    }

    /// Reads all of a range, page by page, at one version. Whether it came to
    /// its end.
    pub(crate) async fn read_range(
        &mut self,
        replica: usize,
        consistency: Consistency,
        range: KeyRange,
        page_entries: usize,
    ) -> bool {
        let (mut consistency, mut after) = (consistency, None);
        // What was read ends there, whatever the replica says where to go on.
        let mut last: Option<Bytes> = None;
        loop {
            let asked = self.asked(consistency, format_args!("{range:?} after {after:?}"));
            let scan = Scan {
                range: range.clone(),
                after: after.clone(),
                reverse: false,
                keys_only: false,
                entries_max: page_entries,
                bytes_max: 1 << 20,
            };
            let read = self.call_replica(replica, move |reader, deadline| {
                let scan = scan.clone();
                async move {
                    let (page, pinned) = reader.scan(&scan, consistency, deadline).await?;
                    let entries = page.entries.into_iter();
                    let rows: Vec<Row> = entries
                        .map(|it| (it.key.into_bytes(), it.value, it.version.get()))
                        .collect();
                    Ok((found(&pinned, rows), page.next))
                }
                .boxed()
            });
            let Some(read) = read.await else { return false };
            let answered = self.answered(&read);
            let mut truth = self.world.truth();
            let (page, next) = match read {
                Ok(page) => page,
                Err(failure) => {
                    truth.read_failed(&asked, answered, &failure);
                    return false;
                }
            };
            let is_end = next.is_none();
            let part = Page { range: &range, after: last.as_ref(), is_end };
            truth.read_page(&asked, answered, &page, part);
            drop(truth);
            if is_end {
                return true;
            }
            consistency = Consistency::Exact(StateVersion::new(page.version));
            after = next;
            last = page.value.into_iter().last().map(|row| row.0).or(last);
        }
    }

    /// Why a replica does not serve a strong read.
    pub(crate) async fn read_failure(&self, replica: usize) -> Option<ReadFailure> {
        let read = self.call_replica(replica, move |reader, deadline| {
            async move { reader.pin(Consistency::Strong, deadline).await.map(drop) }.boxed()
        });
        read.await?.err()
    }

    /// Why a replica does not have a version at hand, or cannot make it.
    pub(crate) async fn pin_failure(
        &self,
        replica: usize,
        consistency: Consistency,
    ) -> Option<ReadFailure> {
        let read = self.call_replica(replica, move |reader, deadline| {
            async move { reader.pin(consistency, deadline).await.map(drop) }.boxed()
        });
        read.await?.err()
    }

    async fn read_changes(&mut self, replica: usize, consistency: Consistency) {
        let range = ChangeRange {
            from: StateVersion::new(self.draw_older()),
            versions_max: self.dice.pick(&[1, 5, 100]),
            bytes_max: self.dice.pick(&[100, 10_000, 1 << 20]),
        };
        let asked = self.asked(consistency, format_args!("{range:?}"));
        let read = self.call_replica(replica, move |reader, deadline| {
            async move {
                let (changes, pinned) = reader.changes(range, consistency, deadline).await?;
                let shown = changes.unwrap_or_default().into_iter().map(|it| {
                    let ids = it.change.operations.iter().map(|it| it.id.as_str().to_owned());
                    (it.version.get(), ids.collect())
                });
                let shown: Vec<(u64, Vec<String>)> = shown.collect();
                Ok(found(&pinned, shown))
            }
            .boxed()
        });
        let Some(read) = read.await else { return };
        let answered = self.answered(&read);
        let mut truth = self.world.truth();
        match &read {
            Ok(found) => truth.read_changes(&asked, answered, found),
            Err(failure) => truth.read_failed(&asked, answered, failure),
        }
    }

    fn answered<T: fmt::Debug>(&self, read: &Result<T, ReadFailure>) -> u64 {
        self.world.trace.event(format_args!("client {}: reads {read:?}", self.index))
    }

    fn note<T>(&mut self, read: &Result<Found<T>, ReadFailure>) {
        if let Ok(found) = read {
            self.knowing.read_at = found.version;
            self.knowing.seen = self.knowing.seen.max(found.version);
        }
    }

    async fn call_replica<T: Send + 'static>(
        &self,
        replica: usize,
        read: impl Fn(Reader, Instant) -> BoxFuture<'static, Result<T, ReadFailure>>
        + Send
        + Sync
        + 'static,
    ) -> Option<Result<T, ReadFailure>> {
        let history = self.history.clone();
        let call = self.world.call(self.index, replica, move |serving| {
            let reading = serving.reader(&history).map(|it| read(it, Instant::now() + READ_MAX));
            async move {
                match reading {
                    Some(reading) => reading.await,
                    None => Err(ReadFailure::ShuttingDown),
                }
            }
            .boxed()
        });
        timeout(READ_MAX * 2, call).await.ok()?.answer
    }
}

fn found<T>(pinned: &Pinned, value: T) -> Found<T> {
    Found { version: pinned.version().get(), revision: pinned.revision().get(), value }
}
