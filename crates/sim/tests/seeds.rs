//! Fixed seeds: the same twice, and nothing wrong in them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use headwater_sim::{Keep, Kind, Plan, Report, run};

/// Operations of each client: runs without optimization are short.
const OPERATIONS_EACH: u64 = 12;

fn plan(kind: Kind, seed: u64) -> Plan {
    Plan::draw(kind, seed).with_operations(OPERATIONS_EACH)
}

fn holds(report: &Report) {
    assert!(report.violations.is_empty(), "seed {}: {:#?}", report.seed, report.violations);
    assert!(0 < report.tally.accepted, "seed {}: nothing happened", report.seed);
}

#[test]
fn a_seed_has_one_trace_byte_for_byte() {
    for (kind, seed) in [(Kind::Swarm, 1), (Kind::Swarm, 2), (Kind::Swarm, 3), (Kind::Plain, 1)] {
        let first = run(plan(kind, seed), Keep::Text);
        let second = run(plan(kind, seed), Keep::Text);

        holds(&first);
        let lines = || first.text.lines().zip(second.text.lines());
        let parted = lines().find(|(one, other)| one != other);
        assert_eq!(parted, None, "{kind:?} {seed}");
        assert_eq!(first, second, "{kind:?} {seed}");
    }
}

#[test]
fn other_seeds_have_other_traces() {
    let digest = |seed| run(plan(Kind::Swarm, seed), Keep::Hash).digest;

    assert_ne!(digest(4), digest(5));
}

/// Short, as all of them in here; CI runs them in full (`headwater-sim --kept`).
#[test]
fn what_was_found_once_is_not_found_again() {
    let all = headwater_sim::kept::all();
    assert!(!all.is_empty());
    for it in all {
        println!("{:?} {}: {}", it.kind, it.seed, it.found);
        holds(&run(plan(it.kind, it.seed), Keep::Count));
    }
}

#[test]
fn everything_holds_under_a_fixed_set_of_seeds() {
    for seed in 100..112 {
        holds(&run(plan(Kind::Swarm, seed), Keep::Count));
    }
}
