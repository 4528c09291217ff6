//! What writers tell.
//!
//! One stream to each configured writer; histories are added to it as they are
//! opened. A notice wakes the follower of its history: it follows the head that
//! comes with it, or asks the store where none does. So a notice that is lost,
//! late or repeated changes no answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use headwater_core::id::{HistoryId, HistoryName, Tag};
use headwater_core::version::Revision;
use headwater_daemon::telemetry::with_causes;
use headwater_proto::v1;
use headwater_proto::v1::write_service_client::WriteServiceClient;
use headwater_store::Entropy;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use crate::follower::PushedHead;
use crate::histories::Histories;
use headwater_daemon::writer_line::{Dial, WriterLine, WriterLineOptions};

/// Histories of one stream, as the contract limits them. Past it a new stream
/// is opened with those that are open then.
const HISTORIES_MAX: usize = 4_096;
/// Names in one message: 256 of the longest are 64 KiB.
const NAMES_AT_ONCE: usize = 256;
/// Messages on their way to the writer.
const MESSAGES_MAX: usize = 4;

/// Bound of the first pause before connecting again; each further one doubles
/// it.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
/// Bound of the longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A stream that lasted so long counts as one that worked.
const LASTED: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How often an idle connection is asked for a sign of life: a writer whose
/// host died is noticed in twice that.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Listens to one writer.
pub(crate) struct Subscriber {
    /// Its place among the writers that were named.
    at: usize,
    address: String,
    line: WriterLineOptions,
    histories: Arc<Histories>,
    entropy: Entropy,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamEnd {
    #[error("cannot connect")]
    Connect(#[from] tonic::transport::Error),
    #[error("the writer ended the stream")]
    Status(#[from] tonic::Status),
    #[error("the writer closed the stream")]
    Closed,
    #[error("as many histories were added as one stream takes")]
    Full,
}

impl Subscriber {
    pub(crate) fn new(
        (at, address): (usize, String),
        line: WriterLineOptions,
        histories: Arc<Histories>,
        entropy: Entropy,
    ) -> Self {
        Self { at, address, line, histories, entropy }
    }

    /// Listens until it is dropped.
    pub(crate) async fn run(self) {
        let settings = |endpoint: Endpoint| {
            endpoint
                .connect_timeout(CONNECT_TIMEOUT)
                .http2_keep_alive_interval(KEEPALIVE)
                .keep_alive_timeout(KEEPALIVE)
                .keep_alive_while_idle(true)
        };
        let dial = match Dial::new(&self.address, &self.line, settings) {
            Ok(dial) => dial,
            Err(error) => {
                // Not worth stopping for: reads are answered without it.
                tracing::error!(writer = self.address, %error, "not an address; not listening");
                return;
            }
        };
        let mut bound = PAUSE_FIRST;
        loop {
            let began = Instant::now();
            let Err(end) = self.listen(&dial).await;
            self.set_listening(false);
            if LASTED <= began.elapsed() {
                bound = PAUSE_FIRST;
            }
            let pause = bound / 2 + self.entropy.jitter(bound / 2);
            tracing::debug!(
                writer = self.address,
                error = with_causes(&end),
                ?pause,
                "not listening"
            );
            sleep(pause).await;
            bound = (bound * 2).min(PAUSE_MAX);
        }
    }

    async fn listen(&self, dial: &Dial) -> Result<std::convert::Infallible, StreamEnd> {
        let mut writer = WriteServiceClient::new(dial.connect().await?);
        let (requests, outgoing) = mpsc::channel(MESSAGES_MAX);
        // Writers may answer only once they have been asked something, so both
        // directions go on at once.
        let adding = self.add_histories(requests);
        let hearing = self.hear(&mut writer, ReceiverStream::new(outgoing));
        tokio::select! {
            biased;
            end = adding => end,
            end = hearing => end,
        }
    }

    /// Adds the open histories, and those that are opened later.
    async fn add_histories<T>(
        &self,
        requests: mpsc::Sender<v1::SubscribeHeadsRequest>,
    ) -> Result<T, StreamEnd> {
        let mut opened = self.histories.opened();
        let mut added = BTreeSet::new();
        loop {
            opened.mark_unchanged();
            let open: BTreeSet<HistoryName> = self.histories.open_names().into_iter().collect();
            let room = HISTORIES_MAX - added.len();
            let new: Vec<HistoryName> = open.difference(&added).take(room).cloned().collect();
            let is_full = new.len() < open.difference(&added).take(room + 1).count();
            // There is no way to take a name back but a new stream. When all
            // names are in use that would not help: the rest is polled.
            if is_full && !added.is_subset(&open) {
                return Err(StreamEnd::Full);
            }
            for names in new.chunks(NAMES_AT_ONCE) {
                let histories = names.iter().map(|it| it.as_str().to_owned()).collect();
                let sent = requests.send(v1::SubscribeHeadsRequest { histories }).await;
                sent.map_err(|_| StreamEnd::Closed)?;
            }
            added.extend(new);
            // The sender lives as long as the histories, which `self` holds.
            opened.changed().await.map_err(|_| StreamEnd::Closed)?;
        }
    }

    async fn hear<T>(
        &self,
        writer: &mut WriteServiceClient<WriterLine>,
        outgoing: ReceiverStream<v1::SubscribeHeadsRequest>,
    ) -> Result<T, StreamEnd> {
        let answer = writer.subscribe_heads(outgoing).await?;
        tracing::info!(writer = self.address, "listening");
        self.set_listening(true);
        let mut notices: Streaming<v1::SubscribeHeadsResponse> = answer.into_inner();
        while let Some(notice) = notices.message().await? {
            if let Some(link) = self.histories.figures().link(self.at) {
                self.histories.figures().heard(link);
            }
            let name = HistoryName::parse(&notice.history);
            let id = HistoryId::parse(&notice.history_id);
            let (Ok(name), Ok(id)) = (name, id) else { continue };
            let revision = Revision::new(notice.revision);
            match notice.published.and_then(pushed) {
                Some(head) => self.histories.push(&name, id, revision, head),
                None => self.histories.notice(&name, id, revision),
            }
        }
        Err(StreamEnd::Closed)
    }

    /// For those who look.
    fn set_listening(&self, is_listening: bool) {
        if let Some(link) = self.histories.figures().link(self.at) {
            link.set_listening(is_listening);
        }
    }
}

fn pushed(published: v1::PublishedHead) -> Option<PushedHead> {
    let v1::PublishedHead { head, etag, store_version, changes } = published;
    let tag = Tag::from_parts(etag, store_version)?;
    Some(PushedHead { head, tag, entries: changes })
}
