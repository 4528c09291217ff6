//! Each planted fault is found. A rig that misses one is broken.

use headwater_model::planted::{Planted, line};
use headwater_model::worlds;

/// A single test: faults of core are planted in the whole process.
#[test]
fn every_planted_fault_is_found() {
    // A publisher that stops itself is one of the things that are found.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    let mut lines = Vec::new();
    for planted in Planted::all() {
        let world = worlds::small().into_iter().find(|it| it.name == planted.world());
        let Some(world) = world else {
            missed.push(format!("{}: no world {}", planted.name(), planted.world()));
            continue;
        };
        let name = world.name;
        let found = planted.hunt(world, 1);
        lines.push(line(planted, name, &found));
        if found.broken.is_none() {
            missed.push(planted.name());
        }
    }
    std::panic::set_hook(hook);
    for it in &lines {
        println!("{it}");
    }
    println!("{} faults", lines.len());
    assert!(missed.is_empty(), "not found: {missed:?}");
    assert!(20 <= lines.len());
}
