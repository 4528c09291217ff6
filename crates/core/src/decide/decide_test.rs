//! Each rule of a decision, and the order in which the rules apply.

#![allow(
    clippy::wildcard_enum_match_arm,
    clippy::clone_on_ref_ptr,
    clippy::needless_for_each,
    clippy::type_complexity,
    reason = "a test names what it expects, and fails on the rest"
)]

use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::operation::{Issue, Request};

struct Head {
    version: u64,
    coverage_from: u64,
    epoch: Option<u64>,
    receipts: Vec<Receipt>,
}

const HISTORY: HistoryId = HistoryId::from_bytes([1; 16]);

impl Basis for Head {
    fn history_id(&self) -> HistoryId {
        HISTORY
    }

    fn state_version(&self) -> StateVersion {
        StateVersion::new(self.version)
    }

    fn coverage_from(&self) -> StateVersion {
        StateVersion::new(self.coverage_from)
    }

    fn required_epoch(&self) -> Option<u64> {
        self.epoch
    }

    fn receipt(&self, id: &OperationId) -> Option<&Receipt> {
        self.receipts.iter().find(|it| it.operation_id == *id)
    }
}

/// At version 10, with receipts from 5 on.
fn head() -> Head {
    Head { version: 10, coverage_from: 5, epoch: None, receipts: Vec::new() }
}

fn key(text: &str) -> Key {
    Key::new(text.as_bytes().to_vec()).unwrap()
}

fn range(start: &str, end: &str) -> KeyRange {
    KeyRange::new(start.as_bytes().to_vec().into(), Some(end.as_bytes().to_vec().into())).unwrap()
}

fn version(number: u64) -> StateVersion {
    StateVersion::new(number)
}

/// `present` = "v" at version 7, `deleted` at version 6, `number` = 40 at 8;
/// deletions are known after version 4.
fn facts() -> Facts {
    let fact = |value: Option<Bytes>, newest: Option<u64>| KeyFact {
        value,
        newest_change: newest.map(version),
    };
    Facts {
        keys: [
            (key("present"), fact(Some("v".into()), Some(7))),
            (key("deleted"), fact(None, Some(6))),
            (key("never"), fact(None, None)),
            (key("number"), fact(Some(integer::encode(40)), Some(8))),
            (key("max"), fact(Some(integer::encode(i64::MAX)), Some(8))),
        ]
        .into(),
        ranges: [(range("a", "c"), None), (range("p", "q"), Some((key("present"), version(7))))]
            .into(),
        deletions_known_from: version(4),
    }
}

fn operation(id: &str, preconditions: Vec<Precondition>, mutations: Vec<Mutation>) -> Operation {
    let request = Request::new(preconditions, mutations).unwrap();
    Operation {
        id: OperationId::parse(id).unwrap(),
        request_hash: request.hash(),
        request: Arc::new(request),
        issue: Issue::ClientKept(version(10)),
        writer_epoch: 0,
        history_id: None,
        ends_version: false,
    }
}

fn put(at: &str) -> Vec<Mutation> {
    vec![Mutation::Put(key(at), "w".into())]
}

fn one(head: &Head, operation: Operation) -> Verdict {
    let asks = [Ask::Submit(operation)];
    decide(head, &facts(), &asks, 0).verdicts.remove(0)
}

fn receipt_of(operation: &Operation) -> Receipt {
    Receipt {
        operation_id: operation.id.clone(),
        request_hash: operation.request_hash,
        accepted_at: version(6),
        position: 3,
        results: vec![MutationResult { mutation: 0, sum: 42 }],
    }
}

#[test]
fn each_precondition_holds_or_says_what_stands_in_the_way() {
    use ConflictKind::{Changed, KeyMissing, KeyPresent, SinceTooOld, ValueDiffers};
    use Precondition::*;
    let cases = [
        (KeyExists(key("present")), None),
        (KeyExists(key("deleted")), Some((KeyMissing, 6))),
        (KeyExists(key("never")), Some((KeyMissing, 0))),
        (KeyAbsent(key("deleted")), None),
        (KeyAbsent(key("never")), None),
        (KeyAbsent(key("present")), Some((KeyPresent, 7))),
        (KeyAtVersion(key("present"), version(7)), None),
        (KeyAtVersion(key("present"), version(6)), Some((Changed, 7))),
        (KeyAtVersion(key("present"), version(8)), Some((Changed, 7))),
        (KeyAtVersion(key("deleted"), version(6)), Some((KeyMissing, 6))),
        (KeyUnchangedSince(key("present"), version(7)), None),
        (KeyUnchangedSince(key("present"), version(9)), None),
        (KeyUnchangedSince(key("present"), version(6)), Some((Changed, 7))),
        // A key that has a value names its last write, however old.
        (KeyUnchangedSince(key("number"), version(3)), Some((Changed, 8))),
        (KeyUnchangedSince(key("deleted"), version(6)), None),
        (KeyUnchangedSince(key("deleted"), version(5)), Some((Changed, 6))),
        (KeyUnchangedSince(key("never"), version(4)), None),
        (KeyUnchangedSince(key("never"), version(3)), Some((SinceTooOld, 4))),
        (RangeUnchangedSince(range("a", "c"), version(4)), None),
        (RangeUnchangedSince(range("a", "c"), version(3)), Some((SinceTooOld, 4))),
        (RangeUnchangedSince(range("p", "q"), version(7)), None),
        (RangeUnchangedSince(range("p", "q"), version(6)), Some((Changed, 7))),
        (RangeUnchangedSince(range("p", "q"), version(3)), Some((Changed, 7))),
        (ValueEquals(key("present"), "v".into()), None),
        (ValueEquals(key("present"), "w".into()), Some((ValueDiffers, 7))),
        (ValueEquals(key("deleted"), "v".into()), Some((ValueDiffers, 6))),
        (ValueHashEquals(key("present"), ContentHash::of(b"v")), None),
        (ValueHashEquals(key("present"), ContentHash::of(b"w")), Some((ValueDiffers, 7))),
        (ValueHashEquals(key("never"), ContentHash::of(b"")), Some((ValueDiffers, 0))),
    ];
    for (precondition, expected) in cases {
        let verdict = one(&head(), operation("a", vec![precondition.clone()], put("x")));
        let found = match verdict {
            Verdict::Accepted(_) => None,
            Verdict::Rejected { at, conflicts } => {
                assert_eq!(at, version(10));
                assert_eq!(conflicts.len(), 1);
                assert_eq!(conflicts[0].place, Place::Precondition(0));
                Some((conflicts[0].kind, conflicts[0].version_seen.get()))
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{precondition:?}");
    }
}

#[test]
fn each_mutation_is_resolved() {
    let mutations = vec![
        Mutation::Put(key("a"), "1".into()),
        Mutation::Delete(key("b")),
        Mutation::DeleteRange(range("c", "d")),
        Mutation::Add(key("number"), 2),
        Mutation::Add(key("never"), -5),
        Mutation::Add(key("number"), -1),
    ];
    let asks = [Ask::Submit(operation("a", Vec::new(), mutations))];
    let change = decide(&head(), &facts(), &asks, 0).change.unwrap();

    let accepted = &change.operations[0];
    let expected = [
        Resolved::Put(key("a"), "1".into()),
        Resolved::Delete(key("b")),
        Resolved::DeleteRange(range("c", "d")),
        Resolved::Put(key("number"), integer::encode(42)),
        Resolved::Put(key("never"), integer::encode(-5)),
        Resolved::Put(key("number"), integer::encode(41)),
    ];
    assert_eq!(accepted.mutations, expected);
    let sums: Vec<_> = accepted.results.iter().map(|it| (it.mutation, it.sum)).collect();
    assert_eq!(sums, [(3, 42), (4, -5), (5, 41)]);
}

#[test]
fn an_addition_counts_on_what_its_own_operation_wrote_before_it() {
    let cases = [
        (Mutation::Put(key("number"), integer::encode(1)), Some(3)),
        (Mutation::Delete(key("number")), Some(2)),
        (Mutation::DeleteRange(range("n", "o")), Some(2)),
        (Mutation::Put(key("number"), "text".into()), None),
    ];
    for (before, expected) in cases {
        let mutations = vec![before, Mutation::Add(key("number"), 2)];
        match one(&head(), operation("a", Vec::new(), mutations)) {
            Verdict::Accepted(receipt) => assert_eq!(Some(receipt.results[0].sum), expected),
            Verdict::Rejected { conflicts, .. } => {
                assert_eq!(expected, None);
                assert_eq!(conflicts[0].kind, ConflictKind::NotAnInteger);
                assert_eq!(conflicts[0].place, Place::Mutation(1));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_sum_that_does_not_fit_and_a_value_that_is_no_integer_are_conflicts() {
    let cases =
        [("max", 1, ConflictKind::Overflow, 8), ("present", 1, ConflictKind::NotAnInteger, 7)];
    for (at, delta, kind, seen) in cases {
        let mutations = vec![Mutation::Put(key("x"), "w".into()), Mutation::Add(key(at), delta)];
        let Verdict::Rejected { conflicts, .. } = one(&head(), operation("a", vec![], mutations))
        else {
            panic!()
        };
        let expected = Conflict {
            kind,
            key: key(at).into_bytes(),
            version_seen: version(seen),
            place: Place::Mutation(1),
        };
        assert_eq!(conflicts, [expected]);
    }
    let down = operation("a", vec![], vec![Mutation::Add(key("max"), -1)]);
    assert!(matches!(one(&head(), down), Verdict::Accepted(_)));
}

/// An operation that breaks every rule is told the first; with that mended, the
/// next.
#[test]
fn receipts_come_before_coverage_before_the_epoch_before_the_state() {
    let absent = vec![Precondition::KeyAbsent(key("present"))];
    let mut subject = operation("a", absent, put("x"));
    subject.issue = Issue::ClientKept(version(3));
    subject.writer_epoch = 1;
    subject.history_id = Some(HistoryId::from_bytes([2; 16]));
    let mut head = head();
    head.epoch = Some(2);
    let other = operation("a", Vec::new(), put("other"));
    head.receipts = vec![receipt_of(&other)];

    assert_eq!(one(&head, subject.clone()), Verdict::OtherHistory { found: HISTORY });
    subject.history_id = Some(HISTORY);
    assert_eq!(one(&head, subject.clone()), Verdict::IdReused);
    head.receipts = vec![receipt_of(&subject)];
    assert_eq!(one(&head, subject.clone()), Verdict::Known(receipt_of(&subject)));
    head.receipts.clear();
    let unknown = Verdict::Unknown { earliest: version(4), coverage_from: version(5) };
    assert_eq!(one(&head, subject.clone()), unknown);
    subject.issue = Issue::ClientKept(version(4));
    assert_eq!(one(&head, subject.clone()), Verdict::Fenced { writer_epoch: 2 });
    subject.writer_epoch = 2;
    assert!(matches!(one(&head, subject.clone()), Verdict::Rejected { .. }));
    subject.issue = Issue::ClientKept(version(11));
    let ahead = Verdict::IssuedAhead { state_version: version(10) };
    assert_eq!(one(&head, subject.clone()), ahead);
    subject.issue = Issue::ClientKept(StateVersion::new(u64::MAX));
    assert_eq!(one(&head, subject), ahead);
}

#[test]
fn each_operation_sees_those_before_it_in_the_batch() {
    let asks = [
        operation("a", vec![], vec![Mutation::Put(key("present"), "new".into())]),
        operation("b", vec![Precondition::ValueEquals(key("present"), "new".into())], put("x")),
        operation("c", vec![Precondition::KeyAbsent(key("present"))], put("never")),
        operation("d", vec![Precondition::KeyAbsent(key("never"))], put("y")),
        operation("e", vec![], vec![Mutation::DeleteRange(range("p", "q"))]),
        operation("f", vec![Precondition::KeyAbsent(key("present"))], put("z")),
        operation(
            "g",
            vec![Precondition::RangeUnchangedSince(range("a", "c"), version(10))],
            put("b"),
        ),
        operation(
            "h",
            vec![Precondition::RangeUnchangedSince(range("a", "c"), version(10))],
            put("q"),
        ),
    ]
    .map(Ask::Submit);
    let mut facts = facts();
    for at in ["x", "y", "z", "b", "q"] {
        facts.keys.insert(key(at), KeyFact::default());
    }
    let decision = decide(&head(), &facts, &asks, 0);

    let is_accepted: Vec<_> =
        decision.verdicts.iter().map(|it| matches!(it, Verdict::Accepted(_))).collect();
    assert_eq!(is_accepted, [true, true, false, true, true, true, true, false]);
    let Verdict::Rejected { at, conflicts } = &decision.verdicts[7] else { panic!() };
    assert_eq!((*at, conflicts[0].version_seen), (version(11), version(11)));
    assert_eq!(conflicts[0].key, "b");
    let change = decision.change.unwrap();
    let ids: Vec<_> = change.operations.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "d", "e", "f", "g"]);
    for (receipt, verdict) in change
        .receipts(version(11))
        .zip(decision.verdicts.iter().filter(|it| matches!(it, Verdict::Accepted(_))))
    {
        assert_eq!(*verdict, Verdict::Accepted(receipt));
    }
}

#[test]
fn a_rejected_operation_leaves_no_trace() {
    let asks = [
        operation("a", vec![], vec![Mutation::Add(key("number"), 1), Mutation::Add(key("max"), 1)]),
        operation("b", vec![], vec![Mutation::Add(key("number"), 1)]),
        operation("a", vec![], put("x")),
    ]
    .map(Ask::Submit);
    let decision = decide(&head(), &facts(), &asks, 0);
    assert!(matches!(&decision.verdicts[0], Verdict::Rejected { at, .. } if *at == version(10)));
    assert!(matches!(&decision.verdicts[1], Verdict::Accepted(it) if it.results[0].sum == 41));
    assert!(matches!(&decision.verdicts[2], Verdict::Accepted(it) if it.position == 1));
}

#[test]
fn a_repetition_in_the_batch_gets_the_same_receipt_and_a_reused_id_none() {
    let asks = [
        operation("a", vec![], vec![Mutation::Add(key("number"), 1)]),
        operation("a", vec![], vec![Mutation::Add(key("number"), 1)]),
        operation("a", vec![], vec![Mutation::Add(key("number"), 2)]),
    ]
    .map(Ask::Submit);
    let decision = decide(&head(), &facts(), &asks, 0);
    let Verdict::Accepted(receipt) = &decision.verdicts[0] else { panic!() };
    assert_eq!(decision.verdicts[1], Verdict::Known(receipt.clone()));
    assert_eq!(decision.verdicts[2], Verdict::IdReused);
    assert_eq!(decision.change.unwrap().operations.len(), 1);
}

#[test]
fn a_batch_that_accepts_nothing_is_no_change() {
    let asks = [Ask::Submit(operation("a", vec![Precondition::KeyExists(key("never"))], put("x")))];
    assert_eq!(decide(&head(), &facts(), &asks, 0).change, None);
    assert_eq!(decide(&head(), &Facts::default(), &[], 0).change, None);
}

#[test]
fn look_ups_say_what_is_on_record() {
    let known = operation("known", vec![], put("x"));
    let head = Head { receipts: vec![receipt_of(&known)], ..head() };
    let look_up = |id: &str, issued_from: u64, history: u8| {
        Ask::LookUp(LookUp {
            id: OperationId::parse(id).unwrap(),
            issued_from: version(issued_from),
            history_id: Some(HistoryId::from_bytes([history; 16])),
        })
    };
    let asks = [
        look_up("known", 0, 1),
        look_up("other", 3, 1),
        look_up("other", 4, 1),
        look_up("other", u64::MAX, 1),
        look_up("known", 0, 2),
        Ask::Submit(operation("new", vec![], put("x"))),
        look_up("new", 10, 1),
    ];
    let verdicts = decide(&head, &facts(), &asks, 0).verdicts;
    let not_accepted = Verdict::NotAccepted { through: version(10) };
    assert_eq!(verdicts[0], Verdict::Known(receipt_of(&known)));
    let unknown = Verdict::Unknown { earliest: version(4), coverage_from: version(5) };
    assert_eq!(verdicts[1], unknown);
    assert_eq!(verdicts[2..4], [not_accepted.clone(), not_accepted]);
    assert_eq!(verdicts[4], Verdict::OtherHistory { found: HISTORY });
    let Verdict::Accepted(receipt) = &verdicts[5] else { panic!() };
    assert_eq!(verdicts[6], Verdict::Known(receipt.clone()));
}

#[test]
fn conflicts_are_named_up_to_a_limit_in_order() {
    let mut preconditions = vec![Precondition::KeyExists(key("present"))];
    let missing = Precondition::KeyExists(key("never"));
    preconditions.extend(std::iter::repeat_n(missing, CONFLICTS_MAX + 10));
    let verdict = one(&head(), operation("a", preconditions, put("x")));
    let Verdict::Rejected { conflicts, .. } = verdict else { panic!() };
    assert_eq!(conflicts.len(), CONFLICTS_MAX);
    assert_eq!(conflicts[0].place, Place::Precondition(1));
    assert_eq!(
        conflicts.last().unwrap().place,
        Place::Precondition(u32::try_from(CONFLICTS_MAX).unwrap())
    );
}

#[test]
fn needs_are_the_keys_that_matter_and_the_oldest_version_of_each_range() {
    let unchanged = |at| Precondition::RangeUnchangedSince(range("a", "c"), version(at));
    let operations = [
        operation("a", vec![unchanged(7)], vec![Mutation::Add(key("n"), 1)]),
        operation(
            "b",
            vec![unchanged(5), Precondition::KeyAbsent(key("k"))],
            vec![
                Mutation::Put(key("p"), "w".into()),
                Mutation::Delete(key("d")),
                Mutation::DeleteRange(range("x", "z")),
            ],
        ),
    ];
    let needs = needs(&operations);
    assert!(needs.keys.iter().eq(&[key("k"), key("n")]));
    assert_eq!(needs.ranges, [(range("a", "c"), version(5))].into());
    assert!(super::needs(&[operation("c", vec![], put("x"))]).is_empty());
}

#[test]
#[should_panic(expected = "no fact about key")]
fn a_missing_fact_is_a_bug_and_not_an_absent_key() {
    let asks = [Ask::Submit(operation("a", vec![Precondition::KeyAbsent(key("x"))], put("x")))];
    decide(&head(), &Facts::default(), &asks, 0);
}

#[test]
fn a_precondition_on_a_version_that_is_still_to_come_is_no_vacuous_truth() {
    let range = range("p", "q");
    let named = |version: StateVersion| {
        [
            Precondition::KeyUnchangedSince(key("present"), version),
            Precondition::RangeUnchangedSince(range.clone(), version),
            Precondition::KeyAtVersion(key("present"), version),
        ]
    };
    for precondition in named(version(11)) {
        let verdict = one(&head(), operation("a", vec![precondition.clone()], put("x")));
        let ahead = Verdict::IssuedAhead { state_version: version(10) };
        assert_eq!(verdict, ahead, "{precondition:?}");
    }
    for precondition in &named(version(10))[..2] {
        let verdict = one(&head(), operation("a", vec![precondition.clone()], put("x")));
        assert!(matches!(verdict, Verdict::Accepted(_)), "{precondition:?}: {verdict:?}");
    }
}
