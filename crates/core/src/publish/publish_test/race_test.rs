//! Publishers that race on one history.

use std::vec::Vec;

use super::check;
use super::dice::Dice;
use super::op::{Op, add};
use super::rig::{Kind, Rig, settings};
use crate::operation::Operation;
use crate::publish::Settings;
use crate::receipt::Window;

const EACH: usize = 500;

fn race(seed: u64, settings_of: impl Fn(usize) -> Settings) {
    let mut dice = Dice::new(seed);
    let mut rig = Rig::new();
    let writers: Vec<_> = (0..2).map(|it| rig.writer_with(settings_of(it))).collect();
    let mut waiting: Vec<Vec<Op>> = writers
        .iter()
        .map(|writer| (0..EACH).map(|it| add(std::format!("{writer}-{it}"), 1)).collect())
        .collect();
    let submitted: Vec<Operation> = waiting.iter().flatten().map(Op::operation).collect();
    let mut tickets = Vec::new();
    loop {
        let at = dice.below(writers.len());
        let writer = writers[at];
        let works = rig.writers[writer].works.len();
        if !waiting[at].is_empty() && (works == 0 || dice.once_in(2)) {
            let count = (1 + dice.below(20)).min(waiting[at].len());
            let ops: Vec<_> = waiting[at].drain(..count).collect();
            tickets.extend(rig.submit_all(writer, &ops));
        } else if 0 < works {
            let index = dice.below(works);
            let work = rig.writers[writer].works.remove(index).unwrap();
            rig.carry_out(writer, work);
        } else if waiting.iter().all(Vec::is_empty)
            && writers.iter().all(|it| rig.writers[*it].works.is_empty())
        {
            break;
        }
    }

    let mut sums: Vec<_> = tickets.iter().map(|it| rig.receipt(*it).results[0].sum).collect();
    sums.sort_unstable();
    assert!(sums.into_iter().eq(1..=2 * i64::try_from(EACH).unwrap()), "seed {seed}");
    assert_eq!(rig.bucket.version().get(), rig.bucket.log.len() as u64, "no gap");
    assert_eq!(rig.bucket.head().operation_count, 2 * EACH as u64);
    check::check_history(&rig.bucket, &submitted);
}

#[test]
fn two_writers_race_500_operations_each_and_all_are_applied_once() {
    for seed in 0..4 {
        let window = Window { versions_max: 5000, bytes_max: 1 << 30 };
        let large = Settings { window, ..settings() };
        let small = Settings { inline_bytes_max: 100, ..large.clone() };
        race(seed, |it| if it == 0 { large.clone() } else { small.clone() });
    }
}

#[test]
fn versions_follow_the_order_of_one_writers_questions() {
    let mut rig = Rig::new();
    let writer = rig.writer();
    let tickets: Vec<_> = (0..40)
        .map(|it| {
            let ticket = rig.submit(writer, &add(std::format!("{it}"), 1));
            if it % 7 == 0 {
                rig.run_but(writer, &[Kind::Publish]);
            }
            ticket
        })
        .collect();
    rig.run(writer);
    for (ticket, sum) in tickets.into_iter().zip(1..) {
        assert_eq!(rig.receipt(ticket).results[0].sum, sum);
    }
}
