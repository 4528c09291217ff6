//! Budgets end a check, and what was left out is said.

use std::sync::Arc;
use std::time::Duration;

use headwater_store::{Latency, Store};
use headwater_verify::{
    Budget, Ended, Options, Part, PartState, Progress, Reason, Verdict, Verifier,
};
use tokio_util::sync::CancellationToken;

use crate::fixture::{World, rich};

fn limited(budget: Budget) -> Options {
    Options { budget, fetches_max: 2, ..Options::default() }
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_objects_ends_it_and_names_what_is_left_out() {
    let world = rich().await;
    let (all, progress) = check(&world, Options::default()).await;
    assert_eq!(all.verdict(), Verdict::Clean);
    let needed = progress.read().objects;
    for objects_max in 0..needed {
        let budget = Budget { objects_max: Some(objects_max), ..Budget::default() };
        let (report, progress) = check(&world, limited(budget)).await;
        assert!(progress.read().objects <= objects_max);
        assert_eq!(report.verdict(), Verdict::Incomplete, "{objects_max}: {report:#?}");
        assert!(
            report.findings.iter().all(|it| it.severity() < headwater_verify::Severity::Unchecked)
        );
        let ended: Vec<Part> = report
            .parts
            .iter()
            .filter(|(_, it)| it.reason() == Some(&Reason::Ended(Ended::Objects)))
            .map(|it| *it.0)
            .collect();
        assert!(!ended.is_empty(), "{objects_max}: {:?}", report.parts);
    }
    let budget = Budget { objects_max: Some(needed), ..Budget::default() };
    assert_eq!(check(&world, limited(budget)).await.0.verdict(), Verdict::Clean);
}

async fn check(world: &World, options: Options) -> (headwater_verify::Report, Progress) {
    let progress = Progress::default();
    let stop = CancellationToken::new();
    let verifier = Verifier::new(Arc::clone(&world.store), options, progress.clone(), stop);
    (verifier.verify(&world.history).await.unwrap(), progress)
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_bytes_is_passed_by_no_more_than_what_is_under_way() {
    let world = rich().await;
    let budget = Budget { bytes_max: Some(100_000), ..Budget::default() };
    let (report, progress) = check(&world, limited(budget)).await;

    assert_eq!(report.verdict(), Verdict::Incomplete);
    let chunk_bytes_max = 5 << 20;
    assert!(progress.read().bytes < 100_000 + 8 * chunk_bytes_max);
    assert!(report.parts.values().any(|it| it.reason() == Some(&Reason::Ended(Ended::Bytes))));
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_time_ends_a_check_in_the_middle_of_a_read() {
    let world = rich().await;
    let way =
        Arc::new(Latency::new(Arc::clone(&world.store), Duration::from_millis(30), Duration::ZERO));
    let began = tokio::time::Instant::now();
    let time_max = Some(Duration::from_millis(100));
    let options = limited(Budget { time_max, ..Budget::default() });
    let way: Arc<dyn Store> = way;
    let verifier = Verifier::new(way, options, Progress::default(), CancellationToken::new());
    let report = verifier.verify(&world.history).await.unwrap();

    assert_eq!(report.verdict(), Verdict::Incomplete);
    assert_eq!(began.elapsed().as_millis() / 10, 10);
    assert_eq!(verifier.ended(), Some(Ended::Time));
    // The budget is spent for further histories too.
    assert!(verifier.verify(&world.history).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn whoever_stops_it_gets_what_was_found_so_far() {
    let world = rich().await;
    let stop = CancellationToken::new();
    let verifier = Verifier::new(
        Arc::clone(&world.store),
        Options::default(),
        Progress::default(),
        stop.clone(),
    );
    stop.cancel();
    assert!(verifier.verify(&world.history).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn parts_that_were_not_asked_for_are_no_gap() {
    let world = rich().await;
    let options = Options { lists_unreached: false, rebuilds: false, ..Options::default() };
    let (report, progress) = check(&world, options).await;

    assert_eq!(report.verdict(), Verdict::Clean);
    assert_eq!(report.parts[&Part::Unreached], PartState::LeftOut(Reason::NotAsked));
    assert_eq!(progress.read().listed, 0);
}
