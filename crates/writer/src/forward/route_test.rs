use headwater_core::id::Nonce;
use tokio::time::sleep;

use super::*;

const ATTEMPT: Duration = Duration::from_millis(20);
const HISTORY: HistoryId = HistoryId::from_bytes([7; 16]);

fn address(name: &str) -> WriterAddress {
    WriterAddress::parse(&format!("http://{name}:7410")).unwrap()
}

fn publisher(id: &str) -> Publisher {
    let address = Some(address(id));
    Publisher { id: id.into(), nonce: Nonce::from_bytes([1; 16]), address }
}

/// The route of a process of this name, which may hand over to `hosts`.
fn route_to(id: &str, hosts: &[&str]) -> Route {
    let hosts: Vec<_> = hosts.iter().map(|it| (*it).to_owned()).collect();
    let rules =
        Rules { publisher_id: id.into(), address: Some(address(id)), hosts: Hosts::new(&hosts) };
    Route::new(HistoryName::parse("h").unwrap(), Arc::new(rules))
}

fn route(id: &str) -> Route {
    route_to(id, &["*"])
}

/// Loses as many races as are contention, each to the next of `others`.
fn contend(route: &Route, others: &[&str]) {
    for n in 0..LOSSES.max(others.len()) {
        route.sent(true, ATTEMPT);
        route.met(&publisher(others[n % others.len()]), HISTORY);
    }
}

fn target(route: &Route) -> Option<WriterAddress> {
    route.target(None).map(|it| it.address)
}

fn taken(is_shared: bool, instead: Option<&str>) -> Taken {
    Taken { verdicts: Vec::new(), is_shared, instead: instead.map(address) }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_history_is_published_here() {
    let route = route("m");
    assert_eq!(target(&route), None);
    // Others publish, and no race is lost to them.
    for _ in 0..100 {
        route.sent(false, ATTEMPT);
        route.met(&publisher("a"), HISTORY);
    }
    assert_eq!(target(&route), None);
    // Races are lost now and then.
    for _ in 0..10 {
        route.sent(true, ATTEMPT);
        route.met(&publisher("a"), HISTORY);
        sleep(RECENT / 2).await;
        assert_eq!(target(&route), None);
    }
}

#[tokio::test(start_paused = true)]
async fn all_who_contend_come_to_the_same_writer_and_it_to_none() {
    let names = ["d", "b", "c", "a"];
    for name in names {
        let route = route(name);
        let others: Vec<_> = names.into_iter().filter(|it| *it != name).collect();
        contend(&route, &others);
        let expected = (name != "a").then(|| address("a"));
        assert_eq!(target(&route), expected, "{name}");
        assert_eq!(route.instead(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn two_never_hand_over_to_each_other() {
    let (a, b) = (route("a"), route("b"));
    contend(&a, &["b"]);
    contend(&b, &["a"]);
    assert_eq!((target(&a), target(&b)), (None, Some(address("a"))));
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_to_a_host_that_was_not_named_or_to_this_process() {
    for hosts in [&[][..], &["b"]] {
        let route = route_to("m", hosts);
        contend(&route, &["a"]);
        assert_eq!(target(&route), None);
    }
    let route = route("m");
    let same = Publisher { address: Some(address("m")), ..publisher("a") };
    for _ in 0..LOSSES {
        route.sent(true, ATTEMPT);
        route.met(&same, HISTORY);
    }
    assert_eq!(target(&route), None);
    // One that says no address cannot be reached; the next can.
    route.met(&Publisher { address: None, ..publisher("a") }, HISTORY);
    route.met(&publisher("b"), HISTORY);
    assert_eq!(target(&route), Some(address("b")));
}

#[tokio::test(start_paused = true)]
async fn an_operation_for_another_history_stays() {
    let route = route("m");
    contend(&route, &["a"]);
    assert_eq!(route.target(Some(HistoryId::from_bytes([8; 16]))), None);
    assert!(route.target(Some(HISTORY)).is_some());
    // The name belongs to another history by now.
    route.met(&publisher("a"), HistoryId::from_bytes([8; 16]));
    assert_eq!(target(&route), None);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_does_not_take_them_is_left_alone_for_longer_each_time() {
    let route = route("m");
    let mut bound = AVOIDED_FIRST;
    for _ in 0..10 {
        contend(&route, &["a"]);
        assert_eq!(target(&route), Some(address("a")));
        route.failed(&address("a"));
        contend(&route, &["a"]);
        assert_eq!(target(&route), None);
        sleep(bound.saturating_sub(Duration::from_millis(1))).await;
        contend(&route, &["a"]);
        assert_eq!(target(&route), None);
        sleep(Duration::from_millis(1)).await;
        bound = (bound * 2).min(AVOIDED_MAX);
    }
    // Another one is there meanwhile.
    contend(&route, &["a"]);
    assert!(target(&route).is_some());
    route.failed(&address("a"));
    contend(&route, &["a", "b"]);
    assert_eq!(target(&route), Some(address("b")));
}

#[tokio::test(start_paused = true)]
async fn what_is_slower_than_publishing_in_turns_ends() {
    let route = route("m");
    contend(&route, &["a"]);
    assert!(target(&route).is_some());
    let slow = SLOW_ATTEMPTS * ATTEMPT * 2;
    for _ in 1..JUDGED_AFTER {
        route.answered(&address("a"), slow + ATTEMPT, &taken(true, None));
    }
    assert!(target(&route).is_some(), "it is judged by more than a few");
    route.answered(&address("a"), slow + ATTEMPT, &taken(true, None));
    contend(&route, &["a"]);
    assert_eq!(target(&route), None);
    sleep(AVOIDED_FIRST).await;
    contend(&route, &["a"]);
    for _ in 0..100 {
        assert!(target(&route).is_some());
        route.answered(&address("a"), slow, &taken(true, None));
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_else_writes_or_nothing_comes_it_ends() {
    let route = route("m");
    contend(&route, &["a"]);
    assert!(target(&route).is_some());
    route.answered(&address("a"), ATTEMPT, &taken(false, None));
    assert_eq!(target(&route), None, "nobody else writes");

    contend(&route, &["a"]);
    for _ in 0..100 {
        assert!(target(&route).is_some(), "it goes on as long as others write");
        route.answered(&address("a"), ATTEMPT, &taken(true, None));
        sleep(RECENT / 2).await;
    }
    assert!(route.is_handing());
    sleep(RECENT).await;
    assert!(!route.is_handing());
    assert_eq!(target(&route), None, "it was quiet");
}

#[tokio::test(start_paused = true)]
async fn one_that_hands_over_itself_says_to_whom() {
    let route = route_to("m", &["a", "b"]);
    contend(&route, &["b"]);
    assert_eq!(target(&route), Some(address("b")));
    route.answered(&address("b"), ATTEMPT, &taken(true, Some("elsewhere")));
    assert_eq!(target(&route), Some(address("b")), "that host is not named");
    route.answered(&address("b"), ATTEMPT, &taken(true, Some("a")));
    assert_eq!(target(&route), Some(address("a")));
    // A late answer of the former one says nothing of the new one.
    route.failed(&address("b"));
    assert_eq!(target(&route), Some(address("a")));
}

#[tokio::test(start_paused = true)]
async fn who_else_writes_is_known_for_a_while() {
    let route = route("a");
    assert!(!route.is_shared("m"));
    route.heard(Some("m"));
    assert!(!route.is_shared("m"));
    route.heard(None);
    assert!(route.is_shared("m"), "callers of its own");
    sleep(RECENT).await;
    assert!(!route.is_shared("m"));
    route.heard(Some("n"));
    assert!(route.is_shared("m"), "another writer hands over");
    sleep(RECENT).await;
    route.met(&publisher("m"), HISTORY);
    assert!(!route.is_shared("m"));
    route.met(&publisher("n"), HISTORY);
    assert!(route.is_shared("m"), "another writer publishes");
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_has_a_limit() {
    let route = route("m");
    for n in 0..10 * OTHERS_MAX {
        let name = format!("n{n}");
        contend(&route, &[&name]);
        route.heard(Some(&name));
        if target(&route).is_some() {
            let address = route.instead().unwrap();
            route.failed(&address);
        }
        sleep(Duration::from_millis(1)).await;
    }
    let state = route.state();
    assert!(state.others.len() <= OTHERS_MAX && state.sources.len() <= OTHERS_MAX);
    assert!(state.avoided.len() <= OTHERS_MAX);
}

#[tokio::test(start_paused = true)]
async fn messages_without_an_outcome_end_it_when_there_are_several_in_a_row() {
    let route = route("m");
    contend(&route, &["a"]);
    assert_eq!(target(&route), Some(address("a")));
    // Operations that nobody will ever accept come now and then.
    for _ in 0..100 {
        for _ in 1..WITHOUT_OUTCOME_MAX {
            route.without_outcome(&address("a"));
        }
        assert_eq!(target(&route), Some(address("a")));
        route.answered(&address("a"), ATTEMPT, &taken(true, None));
    }
    // It has none of any operation.
    for _ in 0..WITHOUT_OUTCOME_MAX {
        assert_eq!(target(&route), Some(address("a")));
        route.without_outcome(&address("a"));
    }
    contend(&route, &["a"]);
    assert_eq!(target(&route), None, "it is left alone");
}

#[tokio::test(start_paused = true)]
async fn one_that_has_handed_nothing_over_for_long_says_nobody_to_go_to() {
    let route = route("m");
    contend(&route, &["a"]);
    assert!(target(&route).is_some());
    sleep(RECENT / 2).await;
    assert_eq!(route.instead(), Some(address("a")));
    sleep(RECENT / 2).await;
    assert_eq!(route.instead(), None);
}

#[tokio::test(start_paused = true)]
async fn whoever_hands_over_is_no_rival_until_it_publishes_again() {
    let route = route("a");
    assert!(!route.has_rivals());
    for name in ["m", "n"] {
        route.met(&publisher(name), HISTORY);
    }
    sleep(Duration::from_millis(1)).await;
    route.heard(Some("m"));
    assert!(route.has_rivals(), "there is another one");
    route.heard(Some("n"));
    route.heard(None);
    assert!(!route.has_rivals());
    sleep(Duration::from_millis(1)).await;
    route.met(&publisher("m"), HISTORY);
    assert!(route.has_rivals());
    sleep(RECENT).await;
    assert!(!route.has_rivals(), "it was quiet");
}
