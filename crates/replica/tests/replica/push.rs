//! Notices from a writer, over a real socket.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use headwater_core::format;
use headwater_core::hash::ContentHash;
use headwater_core::head::{Append, ChangeBody};
use headwater_core::id::Tag;
use headwater_core::version::Revision;
use headwater_proto::v1::write_service_server::{WriteService, WriteServiceServer};
use headwater_proto::v1::{
    GetOperationRequest, GetOperationResponse, PublishedHead, SubmitRequest, SubmitResponse,
    SubmitStreamResponse, SubscribeHeadsRequest, SubscribeHeadsResponse,
};
use headwater_replica::{Consistency, PushedHead, ReadFailure, Reader, ReplicaConfig};
use headwater_store::{Call, Fault, Rule};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::bucket::{PATIENCE, Rig, TestWriter, arrived, deadline, entry_of, key, name, quiet};

/// Says what a test tells it to.
#[derive(Clone)]
struct FakeWriter {
    notices: broadcast::Sender<SubscribeHeadsResponse>,
    subscribed: Arc<watch::Sender<Vec<String>>>,
    streams: Arc<Mutex<CancellationToken>>,
}

#[tonic::async_trait]
impl WriteService for FakeWriter {
    type SubmitStreamStream = ReceiverStream<Result<SubmitStreamResponse, Status>>;
    type SubscribeHeadsStream = ReceiverStream<Result<SubscribeHeadsResponse, Status>>;

    async fn submit(&self, _: Request<SubmitRequest>) -> Result<Response<SubmitResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn submit_stream(
        &self,
        _: Request<Streaming<SubmitRequest>>,
    ) -> Result<Response<Self::SubmitStreamStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn get_operation(
        &self,
        _: Request<GetOperationRequest>,
    ) -> Result<Response<GetOperationResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn subscribe_heads(
        &self,
        request: Request<Streaming<SubscribeHeadsRequest>>,
    ) -> Result<Response<Self::SubscribeHeadsStream>, Status> {
        let mut requests = request.into_inner();
        let mut notices = self.notices.subscribe();
        let (sender, answers) = mpsc::channel(16);
        let this = self.clone();
        let cut = self.streams.lock().unwrap().clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = cut.cancelled() => return,
                    Some(Ok(request)) = requests.next() => {
                        this.subscribed.send_modify(|it| it.extend(request.histories));
                    }
                    Ok(notice) = notices.recv() => {
                        if sender.send(Ok(notice)).await.is_err() { return }
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(answers)))
    }
}

impl FakeWriter {
    fn new() -> Self {
        Self {
            notices: broadcast::Sender::new(16),
            subscribed: Arc::new(watch::Sender::new(Vec::new())),
            streams: Arc::default(),
        }
    }

    async fn serve(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let service = WriteServiceServer::new(self.clone());
        tokio::spawn(
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming),
        );
        address
    }

    /// Waits until these names are subscribed to, in this order.
    async fn subscribed(&self, names: &[&str]) {
        let mut subscribed = self.subscribed.subscribe();
        let waited = tokio::time::timeout(PATIENCE, subscribed.wait_for(|it| it == names)).await;
        drop(waited.expect("subscribed in time").unwrap());
    }

    fn cut_streams(&self) {
        let mut streams = self.streams.lock().unwrap();
        std::mem::take(&mut *streams).cancel();
        self.subscribed.send_modify(Vec::clear);
    }

    /// As `tell`, with the head itself.
    fn push(&self, writer: &TestWriter, changes: Vec<Bytes>) {
        let head = &writer.head;
        let published = PublishedHead {
            head: format::head::encode(head).into(),
            etag: writer.tag.e_tag().map(str::to_owned),
            store_version: writer.tag.version().map(str::to_owned),
            changes,
        };
        let notice = SubscribeHeadsResponse {
            history: head.history.to_string(),
            history_id: head.history_id.to_string(),
            revision: head.revision.get(),
            state_version: head.state_version.get(),
            published: Some(published),
        };
        self.notices.send(notice).unwrap();
    }

    fn tell(&self, writer: &TestWriter) {
        let head = &writer.head;
        let notice = SubscribeHeadsResponse {
            history: head.history.to_string(),
            history_id: head.history_id.to_string(),
            revision: head.revision.get(),
            state_version: head.state_version.get(),
            published: None,
        };
        self.notices.send(notice).unwrap();
    }
}

/// Waits until the replica has a version, without asking it to look.
async fn has(reader: &Reader, version: u64) -> bool {
    let until = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < until {
        let pinned = reader.pin(Consistency::Any, deadline()).await.unwrap();
        if version <= pinned.version().get() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    false
}

async fn rig_with(fake: &FakeWriter) -> Rig {
    let address = fake.serve().await;
    let config = ReplicaConfig { writers: vec![address.to_string()], ..quiet() };
    Rig::open(config).await
}

#[tokio::test]
async fn a_notice_brings_the_head_without_polling() {
    let fake = FakeWriter::new();
    let mut rig = rig_with(&fake).await;
    fake.subscribed(&["h"]).await;
    for i in 1..=5 {
        rig.writer.put("k", "v").await;
        fake.tell(&rig.writer);
        assert!(has(&rig.reader(), i).await);
    }
}

#[tokio::test]
async fn histories_are_added_to_the_stream_as_they_are_opened() {
    let fake = FakeWriter::new();
    let rig = rig_with(&fake).await;
    fake.subscribed(&["h"]).await;
    let mut other = TestWriter::create(rig.faults.behind(), "other", 3).await;
    let reader = rig.replica.reader(name("other"));
    reader.pin(Consistency::Any, deadline()).await.unwrap();
    fake.subscribed(&["h", "other"]).await;
    other.put("k", "v").await;

    fake.tell(&other);

    assert!(has(&reader, 1).await);
}

#[tokio::test]
async fn a_stream_that_ends_is_opened_again_and_its_loss_changes_no_answer() {
    let fake = FakeWriter::new();
    let mut rig = rig_with(&fake).await;
    fake.subscribed(&["h"]).await;
    fake.cut_streams();
    rig.writer.put("k", "v").await;
    // The notice is lost; a strong read does not need it.
    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().1, 1);

    fake.subscribed(&["h"]).await;
    rig.writer.put("k", "w").await;
    fake.tell(&rig.writer);
    assert!(has(&rig.reader(), 2).await);
}

#[tokio::test]
async fn a_writer_that_is_not_there_changes_no_answer() {
    let config =
        ReplicaConfig { writers: vec!["127.0.0.1:1".into(), "not an address".into()], ..quiet() };
    let mut rig = Rig::open(config).await;
    rig.writer.put("k", "v").await;

    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().1, 1);
    rig.replica.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn notices_are_checked_against_the_store_and_old_ones_cost_nothing() {
    let mut rig = Rig::open(quiet()).await;
    let (history, id) = (rig.writer.head.history.clone(), rig.writer.head.history_id);
    let pause = || tokio::time::sleep(Duration::from_millis(1));
    // What is known already.
    for _ in 0..10 {
        rig.replica.notice(&history, id, Revision::FIRST);
        pause().await;
    }
    assert_eq!(rig.count(Call::ReadHead), 0);
    // A revision that is not there: one look each, and no harm.
    rig.replica.notice(&history, id, Revision::new(99));
    pause().await;
    assert_eq!(rig.count(Call::ReadHead), 1);
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 0);
    // Many at once are one.
    rig.writer.put("k", "v").await;
    for _ in 0..100 {
        rig.replica.notice(&history, id, rig.writer.head.revision);
    }
    pause().await;
    assert_eq!(rig.count(Call::ReadHead), 2);
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_notice_of_another_history_ends_the_old_one() {
    let rig = Rig::open(quiet()).await;
    rig.faults.behind().delete("h/head.json").await.unwrap();
    let second = TestWriter::create(rig.faults.behind(), "h", 2).await;

    rig.replica.notice(&name("h"), second.head.history_id, second.head.revision);
    tokio::time::sleep(Duration::from_millis(1)).await;

    let pinned = rig.reader().pin(Consistency::Any, deadline()).await.unwrap();
    assert_eq!(pinned.history_id(), second.head.history_id);
}

/// The head of a writer, as it would push it.
fn pushed(writer: &TestWriter, entries: Vec<Bytes>) -> PushedHead {
    let head = format::head::encode(&writer.head).into();
    PushedHead { head, tag: writer.tag.clone(), entries }
}

fn push(rig: &Rig, writer: &TestWriter, entries: Vec<Bytes>) {
    let head = &writer.head;
    rig.replica.push(&head.history, head.history_id, head.revision, pushed(writer, entries));
}

async fn a_moment() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_pushed_head_and_its_entries_are_visible_without_a_call() {
    let fake = FakeWriter::new();
    let mut rig = rig_with(&fake).await;
    fake.subscribed(&["h"]).await;
    for i in 1..=5 {
        rig.writer.put("k", "v").await;
        fake.push(&rig.writer, Vec::new());
        assert!(has(&rig.reader(), i).await);
    }
    let staged = rig.writer.put_staged("s", "w").await;
    let entry = rig.faults.behind().get(&staged).await.unwrap();
    // Of many entries those are taken that the head names.
    fake.push(&rig.writer, vec![Bytes::from_static(b"no entry"), entry]);
    assert!(has(&rig.reader(), 6).await);
    assert_eq!(rig.read("s", Consistency::Any).await.unwrap().0.unwrap(), "w");

    assert_eq!(rig.count(Call::ReadHead) + rig.count(Call::Get), 0);
}

#[tokio::test(start_paused = true)]
async fn entries_that_were_not_pushed_are_fetched() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put_staged("s", "w").await;

    push(&rig, &rig.writer, Vec::new());
    a_moment().await;

    assert_eq!(rig.read("s", Consistency::Any).await.unwrap().1, 1);
    assert_eq!(rig.count(Call::Get), 1);
    assert_eq!(rig.count(Call::ReadHead), 0);
}

#[tokio::test(start_paused = true)]
async fn pushes_come_in_any_order_and_again() {
    let mut rig = Rig::open(quiet()).await;
    let mut all = Vec::new();
    for i in 0..4 {
        let staged = rig.writer.put_staged("s", &format!("w{i}")).await;
        let entry = rig.faults.behind().get(&staged).await.unwrap();
        all.push((rig.writer.head.revision, pushed(&rig.writer, vec![entry])));
    }
    let (history, id) = (rig.writer.head.history.clone(), rig.writer.head.history_id);
    for (at, expected) in [(1, 2), (0, 2), (3, 4), (3, 4), (2, 4)] {
        let (revision, head) = all[at].clone();
        rig.replica.push(&history, id, revision, head);
        a_moment().await;
        assert_eq!(rig.read("s", Consistency::Any).await.unwrap().1, expected, "after {at}");
    }
    assert_eq!(rig.count(Call::ReadHead), 0);
    // Of versions 1 and 3 the heads came too late, and so did the entries.
    assert_eq!(rig.count(Call::Get), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pushed_head_is_no_proof() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "v").await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    push(&rig, &rig.writer, Vec::new());
    a_moment().await;

    // The age of what is at hand is that of the last proof.
    let pinned = rig.reader().pin(Consistency::Any, deadline()).await.unwrap();
    assert!(Duration::from_secs(5) <= pinned.proof_age());
    // A strong read asks, and is answered by a 304.
    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().1, 1);
    assert_eq!(rig.count(Call::ReadHead), 1);

    rig.writer.put("k", "w").await;
    push(&rig, &rig.writer, Vec::new());
    a_moment().await;
    rig.faults.add(Rule::new(Fault::LoseCall).on(Call::ReadHead).times(1_000));
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 2);
    let soon = tokio::time::Instant::now() + Duration::from_secs(2);
    let failed = rig.reader().get(&key("k"), Consistency::Strong, soon).await;
    assert!(failed.is_err(), "a strong read without the store's word");
}

#[tokio::test(start_paused = true)]
async fn a_strong_read_gets_what_its_check_was_told_and_no_push() {
    let mut rig = Rig::open(quiet()).await;
    let gate = rig.hold_answers(1);
    let reader = rig.reader();
    let strong = tokio::spawn(async move {
        reader.get(&key("k"), Consistency::Strong, deadline()).await.unwrap().1.version().get()
    });
    arrived(&gate, 1).await;
    // While the store's 304 for version 0 is on its way.
    rig.writer.put("k", "v").await;
    push(&rig, &rig.writer, Vec::new());
    a_moment().await;
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 1);

    gate.open();

    assert_eq!(strong.await.unwrap(), 0, "what the store has spoken of");
    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_refuses_gives_up_nothing_that_was_pushed() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "v").await;
    push(&rig, &rig.writer, Vec::new());
    a_moment().await;
    rig.faults.add(Rule::new(Fault::Denied).on(Call::ReadHead).times(1));

    let refused = rig.read("k", Consistency::Strong).await.unwrap_err();

    assert!(matches!(refused, ReadFailure::Denied { .. }), "{refused}");
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 1);
    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap().1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_head_too_large_to_be_kept_is_a_notice() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "v").await;
    push(&rig, &rig.writer, vec![Bytes::from(vec![0; 3 << 20])]);
    a_moment().await;

    assert_eq!(rig.count(Call::ReadHead), 1);
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_denies_is_not_served_after_the_next_check() {
    let mut rig = Rig::open(quiet()).await;
    // A head that a writer made and never published, which the store goes past.
    let mut next = rig.writer.successor();
    let bytes = Bytes::from_static(b"never");
    let entry = entry_of("lie", "never");
    let hash = ContentHash::of(&entry);
    next.append(Append { hash, body: ChangeBody::Inline(entry), operations: 1 });
    let lie = next.finish();
    let head = format::head::encode(&lie).into();
    let it = PushedHead { head, tag: Tag::new("never"), entries: vec![bytes] };
    rig.replica.push(&lie.history, lie.history_id, lie.revision, it);
    a_moment().await;
    assert_eq!(rig.read("lie", Consistency::Any).await.unwrap().1, 1);

    rig.writer.put("k", "true").await;
    rig.writer.put("k", "truer").await;

    assert_eq!(rig.read("k", Consistency::Strong).await.unwrap(), (Some("truer".into()), 2));
    assert_eq!(rig.read("lie", Consistency::Any).await.unwrap(), (None, 2));
}

#[tokio::test(start_paused = true)]
async fn a_push_that_does_not_follow_is_a_reason_to_ask() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "v").await;
    let (history, id) = (rig.writer.head.history.clone(), rig.writer.head.history_id);
    let head = Bytes::from_static(b"{}");
    let it = PushedHead { head, tag: Tag::new("x"), entries: Vec::new() };

    rig.replica.push(&history, id, rig.writer.head.revision, it);
    a_moment().await;

    assert_eq!(rig.count(Call::ReadHead), 1);
    assert_eq!(rig.read("k", Consistency::Any).await.unwrap().1, 1);
}
