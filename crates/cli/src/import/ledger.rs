//! Which lines are under way, and how far everything is settled.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use headwater_client::OperationId;

use super::identity::Chain;

/// Bytes of keys and values under way, at most.
const BYTES_MAX: usize = 32 << 20;

/// The lines between the last one read and the last one before which all are
/// settled.
#[derive(Debug)]
pub(super) struct Ledger {
    window: usize,
    under_way: BTreeMap<u64, UnderWay>,
    by_id: BTreeMap<OperationId, u64>,
    /// Keys of the lines under way: the next line of a key waits.
    keys: BTreeSet<Bytes>,
    bytes: usize,
    /// The last line passed on, and the chain with it.
    last: Mark,
    /// The first line that ended without an outcome: nothing from it on counts
    /// as confirmed.
    stuck: Option<Mark>,
}

/// A line and the hash of all lines up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) line: u64,
    pub(super) chain: Chain,
}

#[derive(Debug)]
struct UnderWay {
    id: OperationId,
    key: Bytes,
    size_bytes: usize,
    before: Mark,
}

/// A line that is to be sent.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) line: u64,
    pub(super) id: OperationId,
    pub(super) key: Bytes,
    pub(super) value: Bytes,
}

impl Ledger {
    /// Everything up to `confirmed` is settled.
    pub(super) fn new(window: usize, confirmed: Mark) -> Self {
        Self {
            window,
            under_way: BTreeMap::new(),
            by_id: BTreeMap::new(),
            keys: BTreeSet::new(),
            bytes: 0,
            last: confirmed,
            stuck: None,
        }
    }

    /// Whether there is room for this line now. There always is once nothing is
    /// under way.
    pub(super) fn has_room(&self, ready: &Ready) -> bool {
        self.under_way.is_empty()
            || self.under_way.len() < self.window
                && self.bytes + ready.key.len() + ready.value.len() <= BYTES_MAX
                && !self.keys.contains(&ready.key)
    }

    /// Takes note of a line that is sent now.
    pub(super) fn send(&mut self, ready: &Ready, chain: Chain) {
        assert_eq!(ready.line, self.last.line + 1, "lines are taken in order");
        let size_bytes = ready.key.len() + ready.value.len();
        let under_way = UnderWay {
            id: ready.id.clone(),
            key: ready.key.clone(),
            size_bytes,
            before: self.last,
        };
        self.under_way.insert(ready.line, under_way);
        self.by_id.insert(ready.id.clone(), ready.line);
        self.keys.insert(ready.key.clone());
        self.bytes += size_bytes;
        self.last = Mark { line: ready.line, chain };
    }

    /// Takes note of a line that needs no operation.
    pub(super) fn skip(&mut self, mark: Mark) {
        assert_eq!(mark.line, self.last.line + 1, "lines are taken in order");
        self.last = mark;
    }

    /// A line has its outcome. None for an id that is not under way.
    pub(super) fn settle(&mut self, id: &OperationId) -> Option<u64> {
        self.end(id).map(|it| it.0)
    }

    /// A line ended without an outcome.
    pub(super) fn fail(&mut self, id: &OperationId) -> Option<u64> {
        let (line, before) = self.end(id)?;
        if self.stuck.is_none_or(|it| before.line < it.line) {
            self.stuck = Some(before);
        }
        Some(line)
    }

    fn end(&mut self, id: &OperationId) -> Option<(u64, Mark)> {
        let line = self.by_id.remove(id)?;
        let ended = self.under_way.remove(&line)?;
        debug_assert_eq!(ended.id, *id);
        self.keys.remove(&ended.key);
        self.bytes -= ended.size_bytes;
        Some((line, ended.before))
    }

    /// The last line up to which every line has its outcome.
    pub(super) fn confirmed(&self) -> Mark {
        let first = self.under_way.first_key_value().map(|it| it.1.before);
        [first, self.stuck].into_iter().flatten().min_by_key(|it| it.line).unwrap_or(self.last)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(line: u64, key: &'static str) -> Ready {
        let id = OperationId::new(format!("l{line}")).unwrap();
        Ready { line, id, key: key.into(), value: "v".into() }
    }

    fn send(ledger: &mut Ledger, line: u64, key: &'static str) {
        let ready = ready(line, key);
        assert!(ledger.has_room(&ready));
        let chain = ledger.last.chain.with(key.as_bytes());
        ledger.send(&ready, chain);
    }

    fn id(line: u64) -> OperationId {
        OperationId::new(format!("l{line}")).unwrap()
    }

    #[test]
    fn what_is_confirmed_has_no_gap() {
        let mut ledger = Ledger::new(8, Mark::default());
        for (line, key) in [(1, "a"), (2, "b"), (3, "c")] {
            send(&mut ledger, line, key);
        }

        assert_eq!(ledger.settle(&id(2)), Some(2));
        assert_eq!(ledger.confirmed(), Mark::default());
        assert_eq!(ledger.settle(&id(1)), Some(1));
        let chain = Chain::default().with(b"a").with(b"b");
        assert_eq!(ledger.confirmed(), Mark { line: 2, chain });
        assert_eq!(ledger.settle(&id(3)), Some(3));
        assert_eq!(ledger.confirmed(), ledger.last);
        assert!(ledger.is_empty());
        assert_eq!(ledger.settle(&id(3)), None);
    }

    #[test]
    fn nothing_is_confirmed_past_a_line_without_an_outcome() {
        let mut ledger = Ledger::new(8, Mark::default());
        for (line, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "d")] {
            send(&mut ledger, line, key);
        }

        ledger.fail(&id(3));
        ledger.fail(&id(2));
        ledger.settle(&id(1));
        ledger.settle(&id(4));

        assert_eq!(ledger.confirmed().line, 1);
        assert!(ledger.is_empty());
    }

    #[test]
    fn a_key_is_under_way_once() {
        let mut ledger = Ledger::new(8, Mark::default());
        send(&mut ledger, 1, "a");

        assert!(!ledger.has_room(&ready(2, "a")));
        assert!(ledger.has_room(&ready(2, "b")));
        ledger.settle(&id(1));
        assert!(ledger.has_room(&ready(2, "a")));
    }

    #[test]
    fn the_window_is_of_lines_and_of_bytes() {
        let mut ledger = Ledger::new(2, Mark::default());
        send(&mut ledger, 1, "a");
        send(&mut ledger, 2, "b");
        assert!(!ledger.has_room(&ready(3, "c")));

        let mut ledger = Ledger::new(2, Mark::default());
        let large = Ready { value: vec![0; BYTES_MAX].into(), ..ready(1, "a") };
        assert!(ledger.has_room(&large), "alone, any line has room");
        ledger.send(&large, Chain::default());
        assert!(!ledger.has_room(&ready(2, "b")));
    }

    #[test]
    fn a_blank_line_is_confirmed_with_those_before_it() {
        let mut ledger = Ledger::new(8, Mark::default());
        send(&mut ledger, 1, "a");
        let blank = Mark { line: 2, chain: ledger.last.chain.with(b"") };
        ledger.skip(blank);

        assert_eq!(ledger.confirmed(), Mark::default());
        ledger.settle(&id(1));
        assert_eq!(ledger.confirmed(), blank);
    }
}
