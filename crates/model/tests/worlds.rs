//! Every schedule of every small world, each visited.

use headwater_model::explore::{Order, explore};
use headwater_model::worlds;

/// Threads, so that two worlds share two cores: cargo runs the tests of one
/// file at the same time.
const THREADS: usize = 1;

fn explore_each(is_meant: impl Fn(usize) -> bool) {
    let mut total = 0;
    for (index, setup) in worlds::small().into_iter().enumerate() {
        if !is_meant(index) {
            continue;
        }
        let name = setup.name;
        let found = explore(setup, Order::Depth, THREADS, None);
        println!("{name:24} {:>8} states, {:>2} deep", found.states, found.depth);
        assert_eq!(found.broken, None, "{name}");
        assert!(found.unreached.is_empty(), "{name} never reaches {:?}", found.unreached);
        total += found.states;
    }
    println!("{total} states");
}

#[test]
fn every_promise_holds_in_every_state_of_half_the_worlds() {
    explore_each(|it| it % 2 == 0);
}

#[test]
fn every_promise_holds_in_every_state_of_the_other_half() {
    explore_each(|it| it % 2 == 1);
}
