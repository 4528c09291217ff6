//! The window against the plainest statement of it, and what an index forgets.

use std::format;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn version(number: u64) -> StateVersion {
    StateVersion::new(number)
}

fn receipt(id: &str, accepted_at: u64, position: u32) -> Receipt {
    Receipt {
        operation_id: OperationId::parse(id).unwrap(),
        request_hash: RequestHash::from_bytes([7; 32]),
        accepted_at: version(accepted_at),
        position,
        results: Vec::new(),
    }
}

fn id(text: &str) -> OperationId {
    OperationId::parse(text).unwrap()
}

/// One receipt of about 50 bytes for each of `counts`, from version 1 on.
fn index(counts: &[u32]) -> ReceiptIndex {
    let mut index = ReceiptIndex::new(version(1));
    for (count, number) in counts.iter().zip(1..) {
        let receipts = (0..*count).map(|it| receipt(&format!("v{number}-{it}"), number, it));
        index.push(version(number), receipts);
    }
    index
}

/// The least boundary that keeps at most so many versions and, but for the
/// newest version's, so many bytes.
fn naive(sizes: &[u64], window: Window) -> StateVersion {
    let newest = sizes.len();
    let fits = |from: &usize| {
        let kept = &sizes[from - 1..];
        let is_few = kept.len() as u64 <= window.versions_max.max(1);
        let is_small = kept.iter().sum::<u64>() <= window.bytes_max;
        is_few && (is_small || kept.len() <= 1)
    };
    version((1..=newest.max(1)).find(fits).unwrap_or(newest.max(1)) as u64)
}

proptest! {
    #[test]
    fn the_planned_boundary_is_the_least_that_fits_the_window(
        kept in prop::collection::vec(0..4_u32, 0..8),
        added in prop::collection::vec(0..300_u64, 1..5),
        versions_max in 0..10_u64,
        bytes_max in 0..1200_u64,
    ) {
        let window = Window { versions_max, bytes_max };
        let index = index(&kept);
        let newest = version(kept.len() as u64);
        let size = |number: usize| u64::from(kept[number]) * receipt("v1-0", 1, 0).size_bytes();
        let sizes: Vec<u64> = (0..kept.len()).map(size).chain(added.iter().copied()).collect();
        prop_assert_eq!(index.plan_coverage(window, newest, &added), naive(&sizes, window));
    }

    #[test]
    fn raising_step_by_step_is_raising_at_once(
        kept in prop::collection::vec(0..4_u32, 0..8),
        added in prop::collection::vec(0..4_u32, 1..5),
        versions_max in 1..10_u64,
        bytes_max in 0..600_u64,
    ) {
        let window = Window { versions_max, bytes_max };
        let size = receipt("v1-0", 1, 0).size_bytes();
        let mut steps = index(&kept);
        let newest = version(kept.len() as u64);
        let added_bytes: Vec<_> = added.iter().map(|it| u64::from(*it) * size).collect();
        let at_once = steps.plan_coverage(window, newest, &added_bytes);
        let mut newest = newest;
        for (count, bytes) in added.iter().zip(&added_bytes) {
            let boundary = steps.plan_coverage(window, newest, &[*bytes]);
            newest = newest.next();
            let number = newest.get();
            steps.push(newest, (0..*count).map(|it| receipt(&format!("v{number:x}-{it}"), number, it)));
            steps.raise_coverage(boundary);
        }
        prop_assert_eq!(steps.coverage_from(), at_once);
    }

    #[test]
    fn an_index_keeps_exactly_what_it_covers(
        counts in prop::collection::vec(0..4_u32, 0..10),
        boundary in 0..12_u64,
    ) {
        let mut index = index(&counts);
        index.raise_coverage(version(boundary));
        prop_assert_eq!(index.coverage_from(), version(boundary.max(1)));
        let mut left = 0;
        for (count, number) in counts.iter().zip(1..) {
            for it in 0..*count {
                let found = index.find(&id(&format!("v{number}-{it}")));
                prop_assert_eq!(found.is_some(), boundary <= number);
                left += usize::from(found.is_some());
            }
        }
        prop_assert_eq!(index.len(), left);
        prop_assert_eq!(index.is_empty(), left == 0);
        prop_assert_eq!(index.size_bytes, left as u64 * receipt("v1-0", 1, 0).size_bytes());
    }
}

#[test]
fn coverage_never_falls() {
    let mut index = index(&[1, 1, 1]);
    index.raise_coverage(version(3));
    index.raise_coverage(version(2));
    assert_eq!(index.coverage_from(), version(3));
    let wide = Window { versions_max: 100, bytes_max: 1 << 20 };
    assert_eq!(index.plan_coverage(wide, version(3), &[10]), version(3));
}

#[test]
fn the_newest_version_stays_whatever_it_takes() {
    let narrow = Window { versions_max: 1, bytes_max: 0 };
    assert_eq!(index(&[3, 3]).plan_coverage(narrow, version(2), &[1_000_000]), version(3));
}

#[test]
fn receipts_below_coverage_are_not_taken_in() {
    let mut index = ReceiptIndex::new(version(3));
    index.push(version(2), [receipt("a", 2, 0)]);
    index.push(version(3), [receipt("b", 3, 0)]);
    assert_eq!(index.find(&id("a")), None);
    assert_eq!(index.find(&id("b")), Some(&receipt("b", 3, 0)));
}

#[test]
fn the_newer_receipt_of_an_id_outlives_the_older() {
    let mut index = ReceiptIndex::new(version(1));
    index.push(version(1), [receipt("a", 1, 0)]);
    index.push(version(2), [receipt("a", 2, 0)]);
    index.raise_coverage(version(2));
    assert_eq!(index.find(&id("a")), Some(&receipt("a", 2, 0)));
    index.raise_coverage(version(3));
    assert_eq!(index.find(&id("a")), None);
    assert_eq!(index.size_bytes, 0);
}

#[test]
fn a_page_is_made_of_receipts_in_order() {
    let index = index(&[2, 1, 1]);
    let page = |from, to| index.between(version(from), version(to)).cloned().collect::<Vec<_>>();
    let (one, two) = ([receipt("v1-0", 1, 0), receipt("v1-1", 1, 1)], [receipt("v2-0", 2, 0)]);
    assert_eq!(page(0, 2), [&one[..], &two[..]].concat());
    assert_eq!(page(2, 2), two);
    assert_eq!(page(4, 9), []);
}

#[test]
#[should_panic(expected = "in order of versions")]
fn a_version_is_added_once() {
    let mut index = index(&[1, 1]);
    index.push(version(2), []);
}
