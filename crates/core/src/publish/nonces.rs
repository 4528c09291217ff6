//! Unique names without randomness in here: a hash chain over a random seed.

use crate::id::Nonce;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nonces {
    seed: [u8; 32],
    pub(super) count: u64,
}

impl Nonces {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self { seed, count: 0 }
    }

    pub(super) fn draw(&mut self) -> Nonce {
        self.count += 1;
        let hash = blake3::keyed_hash(&self.seed, &self.count.to_be_bytes());
        let mut nonce = [0; 16];
        nonce.copy_from_slice(&hash.as_bytes()[..16]);
        Nonce::from_bytes(nonce)
    }
}
