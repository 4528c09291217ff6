//! What a replica shows to those who look: without asking a driver or a store.

use std::time::Duration;

use headwater_daemon::overview::Window;
use headwater_replica::{Consistency, ReplicaConfig};
use tokio::time::advance;

use crate::bucket::{Rig, deadline, name, quiet};

#[tokio::test(start_paused = true)]
async fn a_history_is_shown_as_it_is_followed() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("secret-key", "secret-value").await;
    rig.read("secret-key", Consistency::Strong).await.unwrap();
    advance(Duration::from_secs(3)).await;
    let n_calls = rig.faults.log().len();

    let shown = rig.replica.overview(&Window::default());

    assert_eq!(rig.faults.log().len(), n_calls, "the store is not asked");
    assert_eq!((shown.histories_open, shown.histories.len()), (1, 1));
    let history = &shown.histories[0];
    let head = history.head.as_ref().unwrap();
    assert_eq!((&*history.name, history.proof_age_ms), ("h", Some(3_000)));
    assert_eq!((head.state_version, head.revision), (1, rig.writer.head.revision.get()));
    assert_eq!((history.behind_revisions, history.trouble.as_deref()), (0, None));
    assert!(0 < history.tail_memory_bytes && 0 < head.size_bytes);
    assert_eq!((shown.reads, shown.reads_failed), (2, 0));
    assert!(!format!("{shown:?}").contains("secret"), "no key and no value: {shown:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_told_of_and_cannot_be_followed_shows_as_lag() {
    let mut rig = Rig::open(ReplicaConfig { poll_ms: 1_000, ..quiet() }).await;
    rig.faults.set_outage(true);
    rig.writer.put("k", "v").await;
    let head = &rig.writer.head;
    rig.replica.notice(&head.history, head.history_id, head.revision);
    tokio::time::sleep(Duration::from_secs(30)).await;

    let shown = rig.replica.overview(&Window::default());
    assert_eq!(shown.histories[0].behind_revisions, 1);
    assert!(shown.histories[0].trouble.is_some());
    let lags = rig.replica.source().totals().lags;
    assert!(25_000_000 < lags.quantile_us(1_000).unwrap(), "it shows before it is over");

    rig.faults.set_outage(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let shown = rig.replica.overview(&Window::default());
    assert_eq!((shown.histories[0].behind_revisions, &shown.histories[0].trouble), (0, &None));
}

#[tokio::test(start_paused = true)]
async fn a_followed_notice_counts_once_with_the_time_that_it_took() {
    let mut rig = Rig::open(quiet()).await;
    rig.writer.put("k", "v").await;
    let gate = rig.hold_checks(1);
    let head = &rig.writer.head;
    for _ in 0..3 {
        rig.replica.notice(&head.history, head.history_id, head.revision);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    gate.open();
    tokio::time::sleep(Duration::from_millis(1)).await;

    let lags = rig.replica.source().totals().lags;
    assert_eq!(lags.total(), 1);
    assert!((100_000..=115_000).contains(&lags.quantile_us(500).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_page_of_many_open_histories_is_shown() {
    let config = ReplicaConfig { histories_max: 10_000, ..quiet() };
    let rig = Rig::open(config).await;
    rig.faults.set_outage(true);
    for n in 0..2_000 {
        let reader = rig.replica.reader(name(&format!("many/{n:05}")));
        tokio::spawn(async move { reader.pin(Consistency::Any, deadline()).await });
    }
    tokio::time::sleep(Duration::from_millis(1)).await;

    let window = Window { prefix: String::new(), after: "many/01997".into(), limit: 50 };
    let shown = rig.replica.overview(&window);

    assert_eq!(shown.histories_open, 2_001);
    let names: Vec<_> = shown.histories.iter().map(|it| &*it.name).collect();
    assert_eq!(names, ["many/01998", "many/01999"]);
    assert!(shown.histories.iter().all(|it| it.head.is_none()));
}
