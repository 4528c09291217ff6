//! Each fault that is planted in a driver is found. A rig that misses one is
//! broken.
#![cfg(feature = "planted")]
#![allow(clippy::print_stdout, reason = "the page quotes what this prints")]

use headwater_sim::planted::hunt;
use headwater_store::planted::Fault;

/// Each is found under far fewer seeds; what is random may be unlucky once.
const SEEDS_MAX: u64 = 60;

/// A single test: faults are planted in the whole process.
#[test]
fn every_fault_planted_in_a_driver_is_found() {
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        let hunted = hunt(*fault, SEEDS_MAX);
        println!("{}", hunted.line());
        assert!(hunted.besides.is_empty(), "{fault:?} or not: {:#?}", hunted.besides);
        if hunted.found.is_none() {
            missed.push(fault.name());
        }
    }
    println!("{} faults", Fault::ALL.len());
    assert!(missed.is_empty(), "not found: {missed:?}");
    assert!(20 <= Fault::ALL.len());
}
