//! The cases that broke other systems, by their names.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use headwater_sim::{Keep, Scenario};

fn play(name: &str) {
    for seed in [1, 2] {
        let report = Scenario::find(name).unwrap().run(seed, Keep::Count);
        assert!(report.violations.is_empty(), "{name} {seed}: {:#?}", report.violations);
        assert!(0 < report.tally.accepted, "{name} {seed}: nothing happened");
    }
}

macro_rules! scenarios {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            play($name);
        })*

        #[test]
        fn every_scenario_has_a_test() {
            let tested = [$($name),*];
            let named: Vec<_> = Scenario::ALL.iter().map(|it| it.name).collect();
            assert_eq!(named, tested);
        }
    };
}

scenarios! {
    self_conflict: "self-conflict",
    self_conflict_after_a_commit: "self-conflict-after-a-commit",
    repeated_by_the_client: "repeated-by-the-client",
    deadline_shorter_than_retry: "deadline-shorter-than-retry",
    zombie_after_sweep: "zombie-after-sweep",
    paused_writer: "paused-writer",
    replica_past_retention: "replica-past-retention",
    retry_storm: "retry-storm",
    storm_of_503: "storm-of-503",
    one_per_second: "one-per-second",
    killed_after_every_call: "killed-after-every-call",
    rollout_at_one: "rollout-at-one",
    stale_start: "stale-start",
    two_formats: "two-formats",
}
