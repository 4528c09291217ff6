//! The rules of the contract suite, as far as this process may ask.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::patient::Patient;
use super::report::{Check, CheckId, Permission, Report, Verdict};
use super::{Probe, told};
use crate::Store;
use crate::contract::{self, Broken, Rule};

/// What is asked about heads in any case.
const HEADS: [Rule; 3] = [Rule::Create, Rule::Replace, Rule::ConditionalRead];

/// How long a listing is waited for.
const LISTING_MAX: Duration = Duration::from_secs(10);

/// Between two looks at it.
const LISTING_PAUSE: Duration = Duration::from_millis(250);

pub(super) async fn check(
    probe: &Probe,
    one: &Arc<Patient>,
    other: &Arc<Patient>,
    report: &mut Report,
) {
    let place = |name: &str| place(probe, [one, other], name);
    let mut asking = Asking { patients: [one, other], report };
    let may_delete = !asking.report.is_denied(Permission::Delete);
    let may_list = !asking.report.is_denied(Permission::List);
    let is_current = may_list && is_current(probe, one, other, asking.report).await;
    // Who may not list is not told that an object is missing: a rule about
    // missing objects cannot be asked.
    let is_told = may_delete && may_list;
    let heads = HEADS.into_iter().chain(may_list.then_some(Rule::Missing));
    let heads = heads.chain(is_told.then_some(Rule::DeleteAndRecreate));
    asking.ask(CheckId::Heads, Verdict::Broken, &place("heads"), heads).await;
    let objects = [Rule::CreateOnce].into_iter().chain(is_told.then_some(Rule::Delete));
    let objects = objects.chain([Rule::Sizes, Rule::Ranges].into_iter().filter(|_| is_current));
    asking.ask(CheckId::Objects, Verdict::Broken, &place("objects"), objects).await;
    if is_current {
        asking.ask_large(&place("objects")).await;
        let listings = [Rule::List].into_iter().chain(may_delete.then_some(Rule::ListFolder));
        // Nobody lists to find state: histories are listed for people, and
        // deleted by listing.
        asking.ask(CheckId::Listings, Verdict::Warns, &place("listings"), listings).await;
    }
}

/// Asks about large objects alone.
pub(super) async fn check_large(probe: &Probe, one: &Arc<Patient>, other: &Arc<Patient>) -> Check {
    let mut report = Report::default();
    let mut asking = Asking { patients: [one, other], report: &mut report };
    asking.ask_large(&place(probe, [one, other], "objects")).await;
    let unasked = || Check {
        id: CheckId::LargeObjects,
        verdict: Verdict::Open,
        detail: "it was not asked".to_owned(),
    };
    report.checks.pop().unwrap_or_else(unasked)
}

fn place(probe: &Probe, patients: [&Arc<Patient>; 2], name: &str) -> contract::Place {
    let [one, other] = patients.map(|it| Arc::clone(it) as Arc<dyn Store>);
    contract::Place::new(one, other, &probe.key(name), probe.entropy.clone())
        .with_large(probe.config.large_len_bytes)
}

struct Asking<'a> {
    patients: [&'a Arc<Patient>; 2],
    report: &'a mut Report,
}

impl Asking<'_> {
    /// Calls that had no answer, so far.
    fn n_unanswered(&self) -> usize {
        self.patients.iter().map(|it| it.n_unanswered()).sum()
    }

    /// Names of large objects hold the hash of their bytes, so that nobody writes
    /// others under them: the condition is a second guard, which may be missing.
    async fn ask_large(&mut self, place: &contract::Place) {
        let large = [Rule::LargeOnce].into_iter();
        self.ask(CheckId::LargeObjects, Verdict::Warns, place, large).await;
    }

    /// The first rule that is broken ends it.
    async fn ask(
        &mut self,
        id: CheckId,
        severity: Verdict,
        place: &contract::Place,
        rules: impl Iterator<Item = Rule>,
    ) {
        let before = self.n_unanswered();
        for rule in rules {
            let Err(Broken { rule, seen }) = contract::check_rule(place, rule).await else {
                continue;
            };
            // The suite wants an answer. No answer is none to judge by.
            let is_answered = self.n_unanswered() == before;
            let verdict = if is_answered { severity } else { Verdict::Open };
            return self.report.add(id, verdict, format!("{rule}: {seen}"));
        }
        self.report.holds(id);
    }
}

/// Whether a listing knows of an object at once.
async fn is_current(probe: &Probe, one: &Patient, other: &Patient, report: &mut Report) -> bool {
    let key = probe.key("late/object");
    if let Err(error) = one.put(&key, Bytes::from_static(b"x")).await {
        report.add(CheckId::ListIsCurrent, Verdict::Open, told(&error));
        return false;
    }
    let began = Instant::now();
    let mut n_looks = 0;
    while began.elapsed() < LISTING_MAX {
        match other.list(&probe.key("late/"), None, 10).await {
            Ok(listed) if listed.iter().any(|it| it.key == key) => break,
            Ok(_) => sleep(LISTING_PAUSE).await,
            Err(error) => {
                report.add(CheckId::ListIsCurrent, Verdict::Open, told(&error));
                return false;
            }
        }
        n_looks += 1;
    }
    if n_looks == 0 {
        report.holds(CheckId::ListIsCurrent);
        return true;
    }
    let detail = format!(
        "an object was listed {} ms after it was written: listings of histories lag, and deleting a \
         history may have to be repeated",
        began.elapsed().as_millis()
    );
    report.add(CheckId::ListIsCurrent, Verdict::Warns, detail);
    false
}
