//! Messages that come twice: what lies between two writers may repeat one.
//!
//! A repetition is not taken. Its operations may have been rejected the first
//! time, and their callers told so: they must not be accepted now.

use std::collections::BTreeMap;

/// Lives that are remembered, one for each history of each writer that hands its
/// operations over: some hundred bytes each. Of more, those that were heard of
/// last: a message of another life that is repeated that late is taken anew.
const LIVES_MAX: usize = 4_096;
/// Messages of one life that are told apart, the newest and those before it. A few
/// of them are on their way at a time.
const WINDOW: u32 = u128::BITS;

/// Which messages came already.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    lives: BTreeMap<[u8; 16], Life>,
    /// Counts messages, for the order of lives.
    n_heard: u64,
}

#[derive(Debug)]
struct Life {
    newest: u64,
    /// Bit n: the message n before the newest has come.
    come: u128,
    heard: u64,
}

impl Repeats {
    /// Whether the message has not come yet, as far as that is known. One that is
    /// older than the window counts as come.
    pub(crate) fn is_new(&mut self, life: [u8; 16], number: u64) -> bool {
        self.n_heard += 1;
        let heard = self.n_heard;
        if !self.lives.contains_key(&life) && self.lives.len() == LIVES_MAX {
            let oldest = self.lives.iter().min_by_key(|(_, it)| it.heard).map(|(life, _)| *life);
            if let Some(oldest) = oldest {
                self.lives.remove(&oldest);
            }
        }
        let of = self.lives.entry(life).or_insert(Life { newest: number, come: 0, heard });
        of.heard = heard;
        if of.newest < number {
            let ahead = u32::try_from(number - of.newest).unwrap_or(u32::MAX);
            of.come = of.come.checked_shl(ahead).unwrap_or(0);
            of.newest = number;
        }
        let behind = u32::try_from(of.newest - number).unwrap_or(u32::MAX);
        if WINDOW <= behind || of.come & (1 << behind) != 0 {
            return false;
        }
        of.come |= 1 << behind;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_new_once_in_whatever_order_they_come() {
        let mut repeats = Repeats::default();
        let numbers = [3, 1, 2, 200, 150, 0_u64];
        let first: Vec<_> = numbers.iter().map(|it| repeats.is_new([1; 16], *it)).collect();
        assert_eq!(first, [true, true, true, true, true, false], "0 is older than the window");
        assert!(numbers.iter().all(|it| !repeats.is_new([1; 16], *it)));
        assert!(repeats.is_new([1; 16], u64::MAX));
        assert!(!repeats.is_new([1; 16], u64::MAX));
    }

    #[test]
    fn numbers_of_another_life_are_others_and_the_life_heard_of_longest_ago_goes() {
        let mut repeats = Repeats::default();
        let life = |n: usize| {
            let mut life = [0; 16];
            life[..8].copy_from_slice(&n.to_be_bytes());
            life
        };
        assert!((0..LIVES_MAX).all(|it| repeats.is_new(life(it), 7)));
        assert!(!repeats.is_new(life(0), 7));
        assert!(repeats.is_new(life(LIVES_MAX), 7), "it takes the place of the second");
        assert!(!repeats.is_new(life(0), 7));
        assert!(repeats.is_new(life(1), 7));
        assert_eq!(repeats.lives.len(), LIVES_MAX);
    }
}
