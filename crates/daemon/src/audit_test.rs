use std::io::Write;
use std::sync::Mutex;

use tracing_subscriber::fmt::MakeWriter;

use super::*;
use crate::status;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn recorded(record: impl FnOnce()) -> Vec<serde_json::Value> {
    let lines = Lines::default();
    let subscriber =
        tracing_subscriber::fmt().json().flatten_event(true).with_writer(lines.clone()).finish();
    tracing::subscriber::with_default(subscriber, record);
    let bytes = lines.0.lock().unwrap().clone();
    let text = String::from_utf8(bytes).unwrap();
    text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

fn request() -> Request<()> {
    let mut request = Request::new(());
    let peer = Some("10.1.2.3:40000".parse().unwrap());
    let caller = Caller { principal: None, name: "token ops".into(), peer };
    request.extensions_mut().insert(Arc::new(caller));
    request
}

fn end<T>(record: Record, outcome: Result<T, Status>) {
    let call = record.end(std::future::ready(outcome));
    drop(futures::FutureExt::now_or_never(call).unwrap());
}

#[test]
fn a_line_says_who_what_where_and_how_it_ended() {
    let lines = recorded(|| {
        end(Record::begin(&request(), "DeleteHistory", "app-1"), Ok(()));
        let refused: Result<(), _> = Err(status::permission_denied("no"));
        end(Record::begin(&request(), "DeleteHistory", "app-1"), refused);
        let bare: Result<(), _> = Err(Status::not_found("?"));
        end(Record::begin(&Request::new(()), "PinVersion", "h"), bare);
        drop(Record::begin(&request(), "ForkHistory", "b").from_source("a"));
        process("SetLogLevel", "debug", "token ops", Some("127.0.0.1:1".parse().unwrap()), "OK");
    });

    let outcomes: Vec<_> = lines.iter().map(|it| it["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["OK", "PERMISSION_DENIED", "NOTFOUND", "CANCELLED", "OK"]);
    let first = &lines[0];
    for (field, value) in [
        ("target", TARGET),
        ("what", "DeleteHistory"),
        ("history", "app-1"),
        ("caller", "token ops"),
        ("peer", "10.1.2.3:40000"),
    ] {
        assert_eq!(first[field], value);
    }
    assert_eq!(lines[2]["caller"], "-");
    assert_eq!((&lines[3]["history"], &lines[3]["source"]), (&"b".into(), &"a".into()));
    assert!(first.get("source").is_none());
}

#[test]
fn the_source_of_a_fork_is_told_whole_beside_the_longest_name() {
    let (name, source) = ("n".repeat(256), "s".repeat(256));
    let lines = recorded(|| {
        end(Record::begin(&request(), "ForkHistory", &name).from_source(&source), Ok(()));
        let long = "é\n".repeat(1_000_000);
        end(Record::begin(&request(), "ForkHistory", "b").from_source(&long), Ok(()));
    });
    assert_eq!((&lines[0]["history"], &lines[0]["source"]), (&name.into(), &source.into()));
    assert_eq!(lines.len(), 2);
    assert!(lines[1]["source"].as_str().unwrap().len() < 1_024);
}

#[test]
fn a_name_from_outside_is_one_line_and_not_long() {
    let lines = recorded(|| {
        let name = format!("x\n{{\"forged\": true}}\u{1b}[2J{}", "é".repeat(1_000_000));
        end(Record::begin(&request(), "CreateHistory", &name), Ok(()));
    });
    assert_eq!(lines.len(), 1);
    let shown = lines[0]["history"].as_str().unwrap();
    assert!(shown.starts_with("x\\n{") && !shown.contains('\u{1b}'), "{shown}");
    assert!(shown.len() < 1_024);
}
