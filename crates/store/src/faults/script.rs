//! Which call meets which fault.

use std::collections::VecDeque;

use super::{Fault, KEPT_MAX};
use crate::{Call, Entropy};

/// When a fault acts. Starts as every call; each method narrows it.
#[derive(Clone, Debug)]
pub struct Rule {
    fault: Fault,
    call: Option<Call>,
    key_part: Option<String>,
    skip: u64,
    every: u64,
    times: Option<u64>,
    share: Option<(u64, Entropy)>,
}

impl Rule {
    /// `fault` at every call.
    pub fn new(fault: Fault) -> Self {
        Self { fault, call: None, key_part: None, skip: 0, every: 1, times: None, share: None }
    }

    /// Only at calls of this kind.
    #[must_use]
    pub fn on(mut self, call: Call) -> Self {
        self.call = Some(call);
        self
    }

    /// Only at keys, or prefixes of listings, with this in them.
    #[must_use]
    pub fn key_has(mut self, part: impl Into<String>) -> Self {
        self.key_part = Some(part.into());
        self
    }

    /// Not at the first `n` calls that would match.
    #[must_use]
    pub fn skip(mut self, n: u64) -> Self {
        self.skip = n;
        self
    }

    /// After those skipped, at one of `n` calls: the first of each `n`. 0 is 1.
    #[must_use]
    pub fn every(mut self, n: u64) -> Self {
        self.every = n.max(1);
        self
    }

    /// At most `n` times.
    #[must_use]
    pub fn times(mut self, n: u64) -> Self {
        self.times = Some(n);
        self
    }

    /// At this share of the calls that would match, drawn for each.
    #[must_use]
    pub fn percent(mut self, percent: u64, entropy: Entropy) -> Self {
        self.share = Some((percent, entropy));
        self
    }

    fn matches(&self, call: Call, key: &str) -> bool {
        self.call.is_none_or(|it| it == call)
            && self.key_part.as_ref().is_none_or(|it| key.contains(it))
    }
}

/// Names a rule, so that it can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(u64);

#[derive(Debug)]
struct Entry {
    id: RuleId,
    rule: Rule,
    n_matched: u64,
}

impl Entry {
    /// Counts a call; whether the rule is due at it.
    fn is_due(&mut self, call: Call, key: &str) -> bool {
        if !self.rule.matches(call, key) {
            return false;
        }
        let at = self.n_matched;
        self.n_matched += 1;
        let is_turn = at.checked_sub(self.rule.skip).is_some_and(|it| it % self.rule.every == 0);
        is_turn
            && self.rule.times != Some(0)
            && self.rule.share.as_ref().is_none_or(|(percent, it)| it.below(100) < *percent)
    }
}

#[derive(Debug, Default)]
pub(super) struct Script {
    entries: Vec<Entry>,
    next_id: u64,
    pub(super) is_outage: bool,
    pub(super) calls: [u64; Call::ALL.len()],
    pub(super) n_fired: u64,
    pub(super) log: VecDeque<(Call, String)>,
}

impl Script {
    pub(super) fn add(&mut self, rule: Rule) -> RuleId {
        let id = RuleId(self.next_id);
        self.next_id += 1;
        self.entries.push(Entry { id, rule, n_matched: 0 });
        id
    }

    pub(super) fn remove(&mut self, id: RuleId) -> bool {
        let n_before = self.entries.len();
        self.entries.retain(|it| it.id != id);
        self.entries.len() < n_before
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.is_outage = false;
    }

    /// Counts a call, and takes what it is to meet.
    pub(super) fn take(&mut self, call: Call, key: &str) -> Option<Fault> {
        self.calls[call as usize] += 1;
        if self.log.len() == KEPT_MAX {
            self.log.pop_front();
        }
        self.log.push_back((call, key.into()));
        let fault = if self.is_outage { Some(Fault::LoseCall) } else { self.due(call, key) };
        self.n_fired += u64::from(fault.is_some());
        fault
    }

    fn due(&mut self, call: Call, key: &str) -> Option<Fault> {
        // Every rule counts every call that it matches, also one that another
        // rule takes: "the third" is the third that the caller made.
        let mut chosen = None;
        for (at, entry) in self.entries.iter_mut().enumerate() {
            if entry.is_due(call, key) {
                chosen = chosen.or(Some(at));
            }
        }
        let at = chosen?;
        let rule = &mut self.entries[at].rule;
        rule.times = rule.times.map(|it| it - 1);
        let (fault, is_spent) = (rule.fault.clone(), rule.times == Some(0));
        if is_spent {
            self.entries.remove(at);
        }
        Some(fault)
    }
}
