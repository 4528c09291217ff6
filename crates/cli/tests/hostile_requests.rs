//! Hostile requests: whatever bytes come as a request of any method, the services
//! neither panic nor take more memory than a request may, and what they refuse
//! they refuse by a code and a reason.
//!
//! The methods are those of the descriptor set, so that a new one is covered by
//! being there. The allocator counts what the whole process takes: a process of
//! its own, with a single test in it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]
#![allow(clippy::wildcard_enum_match_arm, reason = "the other types of a field are numbers")]

use std::alloc::System;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _};
use cap::Cap;
use futures::stream;
use headwater_core::id::{HistoryId, HistoryName};
use headwater_daemon::usage::Usage;
use headwater_replica::ReplicaConfig;
use headwater_store::{Clock, Entropy, Memory, Meter, Store};
use headwater_writer::WriterConfig;
use prost::Message as _;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};
use tokio_util::sync::CancellationToken;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::Routes;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Requests of each method. More: `HEADWATER_HOSTILE_REQUESTS`.
const REQUESTS: u64 = 150;
/// What any request may cost, in bytes: its answer, and opening an empty history
/// for it.
const BYTES_FLAT: usize = 1 << 20;
/// What a byte of it may cost: a list of the smallest parts takes many times the
/// space of its bytes, and grows by doubling.
const BYTES_PER_BYTE: usize = 200;
/// Messages that are nested deeper are of no other kind.
const DEPTH_MAX: u32 = 5;

const ID: HistoryId = HistoryId::from_bytes([7; 16]);

/// Bytes as they are, in both directions.
#[derive(Clone, Copy, Debug, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}

struct Method {
    path: String,
    /// The name of what it takes.
    takes: String,
    /// Whether its answers may go on.
    is_stream: bool,
}

/// The messages of the interface by their full names, and its methods.
struct Interface {
    messages: BTreeMap<String, DescriptorProto>,
    methods: Vec<Method>,
}

impl Interface {
    fn of_this_build() -> Self {
        let set = FileDescriptorSet::decode(headwater_proto::FILE_DESCRIPTOR_SET).unwrap();
        let (mut messages, mut methods) = (BTreeMap::new(), Vec::new());
        for file in set.file {
            let package = file.package().to_owned();
            let mut waiting: Vec<_> =
                file.message_type.iter().map(|it| (format!(".{package}"), it.clone())).collect();
            while let Some((parent, message)) = waiting.pop() {
                let name = format!("{parent}.{}", message.name());
                waiting.extend(message.nested_type.iter().map(|it| (name.clone(), it.clone())));
                messages.insert(name, message);
            }
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{package}.{}/{}", service.name(), method.name());
                    let takes = method.input_type().to_owned();
                    methods.push(Method { path, takes, is_stream: method.server_streaming() });
                }
            }
        }
        // The history is there for all the others.
        methods.sort_by_key(|it| it.path.ends_with("/DeleteHistory"));
        Self { messages, methods }
    }

    /// A message whose fields are of the right types, at least.
    fn draw(&self, name: &str, dice: &Entropy, depth: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        // The less is in it, the further it gets.
        let left_out = [20, 40, 80][pick(dice, 3)];
        for field in &self.messages[name].field {
            let left_out = if field.name() == "history" { 10 } else { left_out };
            if dice.below(100) < left_out {
                continue;
            }
            let is_list = field.label() == Label::Repeated;
            let count = if is_list { [0, 1, 2, 3, 70][pick(dice, 5)] } else { 1 };
            for _ in 0..count {
                self.draw_field(field, dice, depth, &mut bytes);
            }
        }
        bytes
    }

    /// One of its lists with as many parts as fit, and nothing in them: what takes
    /// the most space for its bytes.
    fn crowded(&self, name: &str, dice: &Entropy) -> Vec<u8> {
        let fields = self.messages[name].field.iter();
        let lists: Vec<_> = fields.filter(|it| it.label() == Label::Repeated).collect();
        let Some(last) = (lists.len() as u64).checked_sub(1) else { return draw_bytes(dice) };
        let number = u8::try_from(lists[pick(dice, last + 1)].number()).unwrap();
        [number << 3 | 2, 0].repeat(25_000)
    }

    fn draw_field(
        &self,
        field: &FieldDescriptorProto,
        dice: &Entropy,
        depth: u32,
        to: &mut Vec<u8>,
    ) {
        let number = u64::try_from(field.number()).unwrap();
        let mut long = |bytes: &[u8]| {
            put_varint(to, number << 3 | 2);
            put_varint(to, bytes.len() as u64);
            to.extend_from_slice(bytes);
        };
        match field.r#type() {
            Type::Message if depth < DEPTH_MAX => {
                long(&self.draw(field.type_name(), dice, depth + 1));
            }
            Type::Message => long(&[]),
            Type::String => long(&draw_text(field.name(), dice)),
            Type::Bytes => long(&draw_bytes(dice)),
            Type::Double | Type::Fixed64 | Type::Sfixed64 => {
                put_varint(to, number << 3 | 1);
                to.extend_from_slice(&dice.u64().to_le_bytes());
            }
            Type::Float | Type::Fixed32 | Type::Sfixed32 => {
                put_varint(to, number << 3 | 5);
                to.extend_from_slice(&dice.u64().to_le_bytes()[..4]);
            }
            _ => {
                put_varint(to, number << 3);
                let drawn = dice.u64();
                put_varint(to, [0, 1, 2, 5, drawn, u64::MAX, 1 << 63][pick(dice, 7)]);
            }
        }
    }
}

fn pick(dice: &Entropy, count: u64) -> usize {
    usize::try_from(dice.below(count)).unwrap()
}

fn put_varint(to: &mut Vec<u8>, mut value: u64) {
    while 0x80 <= value {
        to.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    to.push(value.to_le_bytes()[0]);
}

fn draw_bytes(dice: &Entropy) -> Vec<u8> {
    let len = [0, 1, 3, 16, 40, 5_000][pick(dice, 6)];
    (0..len).map(|_| dice.u64().to_le_bytes()[0]).collect()
}

/// What gets further than nonsense would, mostly.
fn draw_text(field: &str, dice: &Entropy) -> Vec<u8> {
    let likely = match field {
        "history" | "source" | "histories" | "source_history" => "h".to_owned(),
        _ if field.ends_with("history_id") => ID.to_string(),
        _ => "name-1".to_owned(),
    };
    match dice.below(8) {
        0..5 => likely.into_bytes(),
        5 => b"../head.json".to_vec(),
        6 => "\u{e9}\n\0".repeat(pick(dice, 900)).into_bytes(),
        _ => draw_bytes(dice),
    }
}

/// Bytes with something done to them.
fn damaged(mut bytes: Vec<u8>, dice: &Entropy) -> Vec<u8> {
    for _ in 0..dice.below(4) {
        let at = pick(dice, bytes.len() as u64 + 1);
        match dice.below(5) {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, draw_bytes(dice))),
            // A length that is not true.
            2 => drop(bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x07])),
            3 => {
                let part = bytes[at..].to_vec();
                bytes.extend(part);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
    bytes
}

/// Groups in groups, and messages in messages: what a decoder that recurses runs
/// out of its stack with.
fn nested(dice: &Entropy) -> Vec<u8> {
    let field = u8::try_from(dice.below(15) + 1).unwrap();
    let mut bytes = Vec::new();
    if dice.below(2) == 0 {
        return vec![field << 3 | 3; 50_000];
    }
    for _ in 0..2_000 {
        let mut outer = vec![field << 3 | 2];
        put_varint(&mut outer, bytes.len() as u64);
        outer.extend_from_slice(&bytes);
        bytes = outer;
    }
    bytes
}

async fn services() -> Routes {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let meter = Arc::new(Meter::new(Arc::clone(&store)));
    let config = WriterConfig { operation_timeout_ms: 1_000, ..WriterConfig::default() };
    let clock = Clock::virtual_from(1_700_000_000_000);
    let writer =
        headwater_writer::start(Arc::clone(&store), config, Entropy::from_seed(1), clock).unwrap();
    writer.create(&HistoryName::parse("h").unwrap(), ID, false).await.unwrap();
    let config = ReplicaConfig { request_timeout_ms: 1_000, ..ReplicaConfig::default() };
    let replica = headwater_replica::start(store, config, Entropy::from_seed(2)).unwrap();
    let replica = Box::leak(Box::new(replica));
    let mut routes = Routes::builder();
    routes
        .add_service(writer.write_service())
        .add_service(writer.history_service())
        .add_service(writer.retention_service())
        .add_service(writer.forward_service())
        .add_service(replica.service())
        .add_service(replica.watch_service(CancellationToken::new()))
        .add_service(Usage::service(meter));
    routes.routes()
}

/// Sends a request, and takes a few of its answers.
async fn call(routes: &Routes, method: &Method, bytes: Vec<u8>) -> Result<(), Status> {
    let mut grpc = Grpc::new(routes.clone());
    grpc.ready().await.map_err(|error| Status::unknown(error.to_string()))?;
    let path: PathAndQuery = method.path.parse().unwrap();
    let mut request = Request::new(stream::iter([bytes]));
    request.set_timeout(Duration::from_secs(20));
    let called = async {
        let mut answers = grpc.streaming(request, path, Raw).await?.into_inner();
        for _ in 0..4 {
            if answers.message().await?.is_none() {
                break;
            }
        }
        Ok(())
    };
    // A watch of what exists goes on.
    tokio::time::timeout(Duration::from_secs(10), called).await.unwrap_or_else(|_| {
        assert!(method.is_stream, "{} was not answered", method.path);
        Ok(())
    })
}

/// A refusal says what it is: by a reason of ours, or as the decoder's.
fn check_refusal(path: &str, status: &Status) {
    let is_decoder = matches!(status.code(), Code::Internal | Code::InvalidArgument)
        && status.message().contains("decode");
    let reason = status.get_details_error_info().map(|it| it.reason);
    let is_ours = reason.is_some_and(|it| headwater_proto::reason::ALL.contains(&it.as_str()));
    assert!(is_decoder || is_ours, "{path}: {status:?}");
    assert!(!status.message().is_empty(), "{path}: {status:?}");
}

#[tokio::test(start_paused = true)]
async fn whatever_is_sent_to_any_method_is_answered_or_refused_by_name() {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    let number = std::env::var("HEADWATER_HOSTILE_REQUESTS").ok().map(|it| it.parse().unwrap());
    let interface = Interface::of_this_build();
    assert!(20 <= interface.methods.len(), "{}", interface.methods.len());
    let routes = services().await;
    let (mut answered, mut refused) = (BTreeMap::new(), BTreeMap::new());
    let mut most = BTreeMap::new();
    for method in &interface.methods {
        let (path, message) = (&method.path, &method.takes);
        for n in 0..number.unwrap_or(REQUESTS) {
            let dice = Entropy::from_seed(n);
            let bytes = match n % 8 {
                0 => draw_bytes(&dice),
                1 if n % 40 == 1 => nested(&dice),
                1 if n % 40 == 9 => interface.crowded(message, &dice),
                1..5 => interface.draw(message, &dice, 0),
                _ => damaged(interface.draw(message, &dice, 0), &dice),
            };
            let (len, before) = (bytes.len(), ALLOCATOR.total_allocated());
            let outcome = call(&routes, method, bytes).await;
            let cost = ALLOCATOR.total_allocated() - before;
            let most: &mut (usize, usize) = most.entry(path).or_default();
            *most = (cost, len).max(*most);
            assert!(
                cost <= BYTES_FLAT + BYTES_PER_BYTE * len,
                "{path} {n}: {cost} bytes were allocated for {len}"
            );
            match outcome {
                Ok(()) => *answered.entry(path).or_insert(0) += 1,
                Err(status) => {
                    check_refusal(path, &status);
                    *refused.entry(path).or_insert(0) += 1;
                }
            }
            assert_eq!(PANICS.load(Ordering::Relaxed), 0, "{path} {n}");
        }
    }
    // A test whose requests never get in, or all do, shows nothing.
    for Method { path, .. } in &interface.methods {
        let counts = (answered.get(path).unwrap_or(&0), refused.get(path).unwrap_or(&0));
        let (cost, len) = most[path];
        println!(
            "{path}: {} answered, {} refused, at most {cost} bytes allocated, for {len}",
            counts.0, counts.1
        );
        assert!(0 < *counts.1, "{path}: nothing was refused");
    }
    assert!(20 <= answered.len(), "{answered:?}");
}
