//! The state file.

use std::fs;

use super::*;

fn state() -> State {
    State {
        history: "packages".to_owned(),
        history_id: "0123456789abcdef0123456789abcdef".to_owned(),
        import_id: ImportId::new([1; 32]),
        input: Some(InputNote { lines: 10_000, bytes: 123 }),
        issue: Issue::Newest,
        spans: vec![
            Span { from_line: 1, to_line: 2_048, issued_from_version: Some(0) },
            Span { from_line: 2_049, to_line: 4_096, issued_from_version: Some(9) },
            Span { from_line: 4_097, to_line: 6_144, issued_from_version: None },
        ],
        confirmed: Mark { line: 100, chain: Chain::default().with(b"x") },
        unknown_lines: [3, 5].into(),
        is_complete: false,
    }
}

#[test]
fn what_is_saved_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let file = StateFile::open(folder.path().join("s.json")).unwrap();
    assert_eq!(file.load().unwrap(), None);

    file.save(&state()).unwrap();
    let changed = State { is_complete: true, input: None, ..state() };
    file.save(&changed).unwrap();

    assert_eq!(file.load().unwrap(), Some(changed));
    // The file and its lock; nothing in the making.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn one_process_has_it_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.json");
    let first = StateFile::open(path.clone()).unwrap();

    let refused = StateFile::open(path.clone()).unwrap_err();

    assert_eq!(refused.exit, Exit::Usage);
    drop(first);
    assert!(StateFile::open(path).is_ok());
}

#[test]
fn what_is_not_understood_is_refused() {
    let json = String::from_utf8(state().to_json().unwrap()).unwrap();
    assert_eq!(State::from_json(json.as_bytes()), Ok(state()));

    for (from, to) in [
        ("\"format\": 1", "\"format\": 2"),
        ("\"issue\": \"newest\"", "\"issue\": \"guess\""),
        ("\"complete\"", "\"finished\""),
        ("\"importId\": \"0101", "\"importId\": \"01"),
        ("]", ""),
    ] {
        let altered = json.replacen(from, to, 1);
        assert_ne!(altered, json);
        assert!(State::from_json(altered.as_bytes()).is_err(), "{from}");
    }
}

#[test]
fn a_span_begins_where_the_last_one_ends() {
    let mut state = State { spans: Vec::new(), ..state() };

    state.begin_span(1, Some(0));
    assert_eq!(state.span(SPAN_LINES).unwrap().issued_from_version, Some(0));
    assert_eq!(state.span(SPAN_LINES + 1), None);
    state.begin_span(100, Some(70));

    assert_eq!(state.span(99).unwrap().issued_from_version, Some(0));
    assert_eq!(state.span(100).unwrap().issued_from_version, Some(70));
    assert_eq!(state.spans[0].to_line, 99);
}

#[test]
fn spans_last_until_all_of_their_lines_are_settled() {
    let mut state = state();
    let at = |line| Mark { line, chain: Chain::default() };

    state.confirm(at(2_047));
    assert_eq!(state.spans.len(), 3);
    state.confirm(at(2_048));
    assert_eq!(state.spans.len(), 2);
    assert_eq!(state.span(2_048), None);
    assert_eq!(state.span(2_049).unwrap().issue(), IssueVersion::At(9));
    assert_eq!(state.span(6_144).unwrap().issue(), IssueVersion::ServiceKept);
    assert_eq!(state.span(6_145), None);
}
