use tonic_types::StatusExt as _;

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
    let part = |request_bytes_max| {
        LimitOptions { request_bytes_max, ..LimitOptions::default() }.caller_request_bytes_max()
    };
    assert_eq!(part(256 << 20), 64 << 20);
    assert_eq!(part(9 << 20), (8 << 20) + 5);
    assert_eq!(part(1 << 20), 1 << 20);
}
