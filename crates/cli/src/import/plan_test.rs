//! How runs begin.

use std::path::Path;

use clap::Parser;
use headwater_client::HistoryId;

use super::super::identity::Chain;
use super::super::input::{Content, Source};
use super::super::state::Span;
use super::*;
use crate::exit::Exit;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    import: ImportArgs,
}

fn args(options: &[&str]) -> ImportArgs {
    let line = ["import", "h", "in.ndjson"].into_iter().chain(options.iter().copied());
    Arguments::parse_from(line).import
}

fn history(receipt_coverage_from: u64) -> History {
    History {
        name: "h".to_owned(),
        history_id: HistoryId::new("0".repeat(32)).unwrap(),
        state_version: 9,
        revision: 10,
        operation_count: 20,
        exclusive: false,
        writer_epoch: 0,
        receipt_coverage_from,
        retained_from: 0,
        retention: headwater_client::Retention::default(),
        pins: Vec::new(),
        forked_from: None,
    }
}

fn input(content: u8) -> Identified {
    let id = ImportId::new([content; 32]);
    let content = Some(Content { id, lines: 5, size_bytes: 50 });
    Identified { source: Source::new(Path::new("in.ndjson")), content }
}

fn stdin() -> Identified {
    Identified { source: Source::Stdin, content: None }
}

fn recorded() -> State {
    let state = Plan::make(&args(&["--fresh"]), &input(1), None, &history(1)).unwrap().state;
    let span = Span { from_line: 1, to_line: 2_048, issued_from_version: Some(9) };
    let confirmed = Mark { line: 3, chain: Chain::default().with(b"x") };
    State { spans: vec![span], confirmed, ..state }
}

fn refusal(input: &Identified, state: State, history: &History) -> String {
    let refused = Plan::make(&args(&[]), input, Some(state), history).unwrap_err();
    assert_eq!(refused.exit, Exit::Usage);
    refused.to_text()
}

#[test]
fn without_a_record_nothing_but_zero_is_true() {
    let plan = Plan::make(&args(&[]), &input(1), None, &history(1)).unwrap();
    assert_eq!(plan.state.issue, Issue::Zero);
    assert_eq!(plan.state.import_id, ImportId::new([1; 32]));

    let fresh = Plan::make(&args(&["--fresh"]), &input(1), None, &history(7)).unwrap();
    assert_eq!(fresh.state.issue, Issue::Newest);
    let kept = Plan::make(&args(&["--service-kept"]), &input(1), None, &history(7)).unwrap();
    assert_eq!(kept.state.issue, Issue::ServiceKept);
}

#[test]
fn without_a_record_and_without_receipts_nothing_is_sent() {
    let refused = Plan::make(&args(&[]), &input(1), None, &history(2)).unwrap_err();

    assert_eq!(refused.exit, Exit::Usage);
    let text = refused.to_text();
    assert!(text.contains("--fresh") && text.contains("--state"), "{text}");
}

#[test]
fn a_record_is_gone_on_with_however_few_receipts_there_are() {
    let plan = Plan::make(&args(&[]), &input(1), Some(recorded()), &history(7)).unwrap();
    assert_eq!(plan.state, recorded());
    assert!(!plan.is_done());

    // What is open keeps the version that it was sent with.
    let plan = Plan::make(&args(&["--service-kept"]), &input(1), Some(recorded()), &history(7));
    let state = plan.unwrap().state;
    assert_eq!(state.issue, Issue::ServiceKept);
    assert_eq!(state.spans, recorded().spans);
}

#[test]
fn a_record_of_something_else_is_refused() {
    assert!(refusal(&input(2), recorded(), &history(1)).contains("another input"));
    assert!(refusal(&stdin(), recorded(), &history(1)).contains("another input"));
    let elsewhere = State { history: "other".to_owned(), ..recorded() };
    assert!(refusal(&input(1), elsewhere, &history(1)).contains("into other"));
    let gone = State { history_id: "1".repeat(32), ..recorded() };
    assert!(refusal(&input(1), gone, &history(1)).contains("which is gone"));
}

#[test]
fn what_is_complete_is_not_read_again_unless_it_has_to_be() {
    let done = State { is_complete: true, ..recorded() };
    let plan = Plan::make(&args(&[]), &input(1), Some(done), &history(1)).unwrap();
    assert!(plan.is_done());

    let begun = Plan::make(&args(&["--fresh"]), &stdin(), None, &history(1)).unwrap().state;
    let done = State { is_complete: true, ..begun };
    let plan = Plan::make(&args(&[]), &stdin(), Some(done), &history(1)).unwrap();
    assert!(!plan.is_done());
}
