//! What clients ask for.

use std::sync::Arc;

use bytes::Bytes;
use headwater_core::hash::ContentHash;
use headwater_core::id::OperationId;
use headwater_core::operation::{Issue, Key, KeyRange, Mutation, Operation, Precondition, Request};
use headwater_core::version::StateVersion;

use crate::dice::Dice;
use crate::plan::Mix;

/// What a client knows when it asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knowing {
    /// The newest version that it was told of.
    pub(crate) seen: u64,
    /// One that it has read from, or less.
    pub(crate) read_at: u64,
    /// The writer epoch that it was told of.
    pub(crate) epoch: u64,
}

pub(crate) fn key(text: &str) -> Option<Key> {
    Key::new(Bytes::copy_from_slice(text.as_bytes())).ok()
}

/// One of the keys of a history.
pub(crate) fn draw_key(dice: &Dice, mix: &Mix) -> Key {
    nth_key(dice.below(mix.keys))
}

fn nth_key(n: u64) -> Key {
    let text = format!("k{n:05}");
    key(&text).unwrap_or_else(|| unreachable!("a key of six bytes is one"))
}

/// A range of keys, a few or all of them.
pub(crate) fn draw_range(dice: &Dice, mix: &Mix) -> KeyRange {
    let first = dice.below(mix.keys);
    let span = dice.pick(&[1, 3, 20, 500]);
    let end = (first + span < mix.keys).then(|| nth_key(first + span).into_bytes());
    KeyRange::new(nth_key(first).into_bytes(), end).unwrap_or(KeyRange::everything())
}

/// An operation, drawn. Most have an addition in them: doing it twice shows.
pub(crate) fn draw_operation(
    dice: &Dice,
    mix: &Mix,
    id: &str,
    knowing: Knowing,
) -> Option<Operation> {
    let id = OperationId::parse(id).ok()?;
    let preconditions = if dice.percent(mix.conditions) {
        (0..dice.between(1, 2)).map(|_| draw_precondition(dice, mix, knowing)).collect()
    } else {
        Vec::new()
    };
    let mut mutations = vec![draw_mutation(dice, mix)];
    if dice.percent(60) {
        let counter = key(&format!("n{}", dice.below(4)))?;
        mutations.push(Mutation::Add(counter, i64::try_from(dice.between(1, 9)).ok()?));
    }
    while dice.percent(20) {
        mutations.push(draw_mutation(dice, mix));
    }
    let request = Request::new(preconditions, mutations).ok()?;
    let issue = if dice.percent(mix.service_kept) {
        Issue::ServiceKept { issued_from: StateVersion::ZERO, is_durable: false }
    } else {
        // Any version that was seen will do; an old one may cost the outcome.
        let from = if dice.percent(90) { knowing.seen } else { dice.between(0, knowing.seen) };
        Issue::ClientKept(StateVersion::new(from))
    };
    Some(Operation {
        id,
        request_hash: request.hash(),
        request: Arc::new(request),
        issue,
        writer_epoch: knowing.epoch,
        history_id: None,
        ends_version: false,
    })
}

fn draw_mutation(dice: &Dice, mix: &Mix) -> Mutation {
    let key = draw_key(dice, mix);
    if dice.percent(mix.deletions) {
        return if dice.percent(30) {
            Mutation::DeleteRange(draw_range(dice, mix))
        } else {
            Mutation::Delete(key)
        };
    }
    let len = if dice.percent(mix.large_values) {
        dice.between(1_000, 9_000)
    } else {
        dice.between(0, 40)
    };
    let byte = u8::try_from(dice.below(256)).unwrap_or(0);
    Mutation::Put(key, Bytes::from(vec![byte; usize::try_from(len).unwrap_or(0)]))
}

fn draw_precondition(dice: &Dice, mix: &Mix, knowing: Knowing) -> Precondition {
    let key = draw_key(dice, mix);
    let since = StateVersion::new(knowing.read_at);
    match dice.below(8) {
        0 => Precondition::KeyExists(key),
        1 | 2 => Precondition::KeyAbsent(key),
        3 => Precondition::KeyAtVersion(key, since),
        4 => Precondition::KeyUnchangedSince(key, since),
        5 => Precondition::RangeUnchangedSince(draw_range(dice, mix), since),
        6 => Precondition::ValueEquals(key, Bytes::from(vec![0; 3])),
        _ => Precondition::ValueHashEquals(key, ContentHash::of(&[])),
    }
}
