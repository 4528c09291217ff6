use tonic_types::StatusExt as _;

use super::bytes::FRAME_BYTES;
use super::options::Most;
use super::*;

fn limits(options: LimitOptions) -> Arc<Limits> {
    Limits::new(options)
}

fn name(text: &str) -> Arc<str> {
    text.into()
}

fn subject(refused: &Status) -> String {
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
    let details = refused.get_error_details();
    assert!(details.retry_info().is_some(), "{refused}");
    assert_eq!(details.error_info().unwrap().reason, headwater_proto::reason::TOO_MANY_REQUESTS);
    details.quota_failure().unwrap().violations[0].subject.clone()
}

#[tokio::test(start_paused = true)]
async fn one_caller_cannot_take_the_place_of_another() {
    let limits = limits(LimitOptions { caller_requests_max: 2, ..LimitOptions::default() });
    let (a, b) = (name("a"), name("b"));
    let held = [limits.admit(&a, None).unwrap(), limits.admit(&a, None).unwrap()];

    let refused = limits.admit(&a, None).unwrap_err();
    assert_eq!(subject(&refused), "calls of this caller at a time");
    drop(limits.admit(&b, None).unwrap());

    drop(held);
    assert!(limits.admit(&a, None).is_ok());
    assert_eq!(limits.calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn all_callers_together_have_an_end() {
    let limits = limits(LimitOptions { requests_max: 2, ..LimitOptions::default() });
    let _held = [limits.admit(&name("a"), None).unwrap(), limits.admit(&name("b"), None).unwrap()];

    let refused = limits.admit(&name("c"), None).unwrap_err();
    assert_eq!(subject(&refused), "calls of all callers at a time");
}

#[tokio::test(start_paused = true)]
async fn calls_that_anybody_may_make_have_an_end_of_their_own() {
    let limits = limits(LimitOptions { requests_max: 2, ..LimitOptions::default() });
    let open = |caller: &str, is_stream| limits.admit_open(&name(caller), 256, is_stream);
    let held = [open("a", true).unwrap(), open("b", true).unwrap()];

    let refused = open("c", true).unwrap_err();

    assert_eq!(subject(&refused), "calls of all callers at a time");
    assert!(!limits.state().callers.contains_key("c"));
    // Those that last keep out neither short ones nor calls with a right.
    let short = [open("c", false).unwrap(), open("d", false).unwrap()];
    assert_eq!(subject(&open("e", false).unwrap_err()), "calls of all callers at a time");
    let _ordinary =
        [limits.admit(&name("f"), None).unwrap(), limits.admit(&name("g"), None).unwrap()];
    drop(held);
    assert!(open("c", true).is_ok());
    drop(short);
    assert!(open("e", false).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_the_callers_own_and_says_when_to_come_back() {
    let limits =
        limits(LimitOptions { caller_requests_per_second_max: 100, ..LimitOptions::default() });
    let (slow, fast) = (name("slow"), name("fast"));
    assert!(limits.admit(&slow, Some(2)).is_ok());
    assert!(limits.admit(&slow, Some(2)).is_ok());

    let refused = limits.admit(&slow, Some(2)).unwrap_err();

    assert_eq!(subject(&refused), "calls of this caller a second");
    let wait = refused.get_error_details().retry_info().unwrap().retry_delay.unwrap();
    assert_eq!(wait, Duration::from_millis(500));
    assert!((0..100).all(|_| limits.admit(&fast, None).is_ok()));
    assert!(limits.admit(&fast, None).is_err());
    tokio::time::advance(wait).await;
    assert!(limits.admit(&slow, Some(2)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn refused_calls_leave_nothing_behind_and_callers_are_forgotten() {
    let limits = limits(LimitOptions { requests_max: 1, ..LimitOptions::default() });
    let held = limits.admit(&name("a"), Some(1)).unwrap();
    for n in 0..100 {
        assert!(limits.admit(&name(&format!("c{n}")), None).is_err());
    }
    drop(held);
    // It still has a rate to pay off.
    assert!(limits.admit(&name("a"), Some(1)).is_err());

    tokio::time::advance(Duration::from_secs(2)).await;
    drop(limits.admit(&name("a"), None).unwrap());
    assert_eq!(limits.calls(), 0);
    assert!(!limits.state().callers.contains_key("a"));
}

#[tokio::test(start_paused = true)]
async fn callers_beyond_what_can_be_remembered_are_refused() {
    let limits = limits(LimitOptions { requests_max: u64::MAX, ..LimitOptions::default() });
    let held: Vec<_> =
        (0..CALLERS_MAX).map(|n| limits.admit(&name(&n.to_string()), None).unwrap()).collect();

    let refused = limits.admit(&name("more"), None).unwrap_err();

    assert_eq!(subject(&refused), "callers at a time");
    drop(held);
    assert!(limits.admit(&name("more"), None).is_ok());
}

#[tokio::test(start_paused = true)]
async fn bytes_of_requests_have_an_end_and_are_given_back() {
    let limits = limits(LimitOptions { request_bytes_max: 10, ..LimitOptions::default() });
    let held = [limits.admit(&name("a"), None).unwrap(), limits.admit(&name("b"), None).unwrap()];
    let [one, two] = held.each_ref().map(Permit::charge);
    one.add(6).unwrap();
    two.add(4).unwrap();

    assert_eq!(subject(&two.add(1).unwrap_err()), "bytes of unanswered requests");

    drop(two);
    assert_eq!(limits.bytes(), 6);
    drop(one);
    assert_eq!(limits.bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_caller_holds_a_quarter_of_the_bytes_and_the_others_have_the_rest() {
    let max = 64 << 20;
    let limits = limits(LimitOptions { request_bytes_max: max, ..LimitOptions::default() });
    let greedy: Vec<_> = (0..8).map(|_| limits.admit(&name("greedy"), None).unwrap()).collect();
    let charges: Vec<_> = greedy.iter().map(Permit::charge).collect();
    let refused: Vec<_> = charges.iter().filter_map(|it| it.add(4 << 20).err()).collect();

    assert_eq!(refused.len(), 4);
    assert_eq!(subject(&refused[0]), "bytes of this caller's unanswered requests");
    assert_eq!(limits.bytes(), max / 4, "what is refused is not held");
    let other = limits.admit(&name("other"), None).unwrap();
    other.charge().add(8 << 20).unwrap();

    drop((charges, greedy));
    let again = limits.admit(&name("greedy"), None).unwrap();
    again.charge().add(16 << 20).unwrap();
    assert_eq!(limits.bytes(), 0);
}

#[test]
fn the_part_of_one_caller_has_room_for_one_message() {
    let part = |of_all| Most::of(of_all).of_caller;
    assert_eq!(part(256 << 20), 64 << 20);
    assert_eq!(part(9 << 20), (8 << 20) + 5 + FRAME_BYTES);
    assert_eq!(part(1 << 20), 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn answers_count_until_their_last_bytes_are_gone() {
    let max = 64 << 20;
    let limits = limits(LimitOptions { answer_bytes_max: max, ..LimitOptions::default() });
    let (greedy, other) =
        (limits.admit(&name("greedy"), None).unwrap(), limits.admit(&name("other"), None).unwrap());
    let len: usize = 1 << 20;
    let frame =
        || greedy.answers(OnTheWay::default()).take(len).map(|it| it.with(vec![7; len].into()));
    let mut held = Vec::new();
    let refused = loop {
        match frame() {
            Ok(bytes) => held.push(bytes),
            Err(refused) => break refused,
        }
    };
    assert_eq!(subject(&refused), "bytes of answers that this caller has not taken");
    assert_eq!(held.len(), 15, "a quarter, with what each takes beside");
    assert_eq!(limits.answer_bytes(), 15 * (len as u64 + FRAME_BYTES));
    // The others have the rest.
    let of_other = other.answers(OnTheWay::default()).take(8 << 20).unwrap();

    // A part of it is all of it.
    let part = held.pop().unwrap().slice(..1);
    assert!(frame().is_err());
    drop(part);
    held.push(frame().unwrap());
    drop((held, of_other));
    assert_eq!(limits.answer_bytes(), 0);
    // Empty ones take something too.
    let empty: Vec<_> =
        (0..1_000_000).map_while(|_| greedy.answers(OnTheWay::default()).take(0).ok()).collect();
    assert_eq!(empty.len(), 16 << 10);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_room_is_told_of_it() {
    let limits = limits(LimitOptions { answer_bytes_max: 1 << 20, ..LimitOptions::default() });
    let (a, b) = (limits.admit(&name("a"), None).unwrap(), limits.admit(&name("b"), None).unwrap());
    assert!(b.answers(OnTheWay::default()).has_room());
    // With what a frame takes by itself.
    let held = a.answers(OnTheWay::default()).hold((1 << 20) - 1_024);
    assert!(!b.answers(OnTheWay::default()).has_room());
    let waiting = tokio::spawn(b.answers(OnTheWay::default()).room());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waiting.is_finished());

    drop(held);

    tokio::time::timeout(Duration::from_secs(1), waiting).await.expect("it is told").unwrap();
}

#[test]
fn what_a_caller_holds_beyond_its_part_takes_no_room_from_others() {
    let limits = limits(LimitOptions { answer_bytes_max: 64 << 20, ..LimitOptions::default() });
    let (a, b) = (limits.admit(&name("a"), None).unwrap(), limits.admit(&name("b"), None).unwrap());
    let of_a = a.answers(OnTheWay::default());
    let held: Vec<_> = (0..100).map(|_| of_a.hold(1 << 20)).collect();
    assert!(!of_a.has_room());
    assert!(b.answers(OnTheWay::default()).has_room());
    assert!(b.answers(OnTheWay::default()).take(8 << 20).is_ok());
    drop(held);
    assert_eq!(limits.answer_bytes(), 0);
}

#[test]
fn an_answer_over_the_limit_goes_where_nothing_else_is_held() {
    let limits = limits(LimitOptions { answer_bytes_max: 1 << 20, ..LimitOptions::default() });
    let a = limits.admit(&name("a"), None).unwrap();
    let large = a.answers(OnTheWay::default()).take(5 << 20).unwrap();
    assert!(a.answers(OnTheWay::default()).take(1).is_err());
    drop(large);
    assert!(a.answers(OnTheWay::default()).take(1).is_ok());
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_stream_are_calls() {
    let limits = limits(LimitOptions::default());
    let stream = limits.admit(&name("a"), Some(10)).unwrap();
    assert_eq!(stream.take_messages(9), None);
    assert_eq!(stream.take_messages(20), Some(Duration::from_secs(2)));
    // And others of its caller are refused meanwhile.
    assert!(limits.admit(&name("a"), Some(10)).is_err());
    tokio::time::advance(Duration::from_millis(2_100)).await;
    assert!(limits.admit(&name("a"), Some(10)).is_ok());
    let unlimited = limits.admit(&name("b"), None).unwrap();
    assert_eq!(unlimited.take_messages(1_000_000), None);
}

#[tokio::test(start_paused = true)]
async fn what_a_caller_holds_is_remembered_when_its_calls_are_over() {
    let limits = limits(LimitOptions { answer_bytes_max: 64 << 20, ..LimitOptions::default() });
    let answer = |len: usize| {
        let call = limits.admit(&name("a"), None).unwrap();
        call.answers(OnTheWay::default()).take(len)
    };
    let mut held: Vec<_> = (0..15).map(|_| answer(1 << 20).unwrap()).collect();
    assert_eq!(limits.calls(), 0);
    assert!(answer(1 << 20).is_err(), "a quarter is a quarter, however many calls it took");

    held.clear();
    drop(answer(1 << 20).unwrap());
    drop(limits.admit(&name("a"), None).unwrap());
    assert!(!limits.state().callers.contains_key("a"));
}
