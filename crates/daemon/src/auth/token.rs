//! Bearer tokens of our own: how they are made, and what is kept of them.
//!
//! ```text
//! hwt_<id, 16 hex digits>_<secret, 64 hex digits>
//! ```
//!
//! The id finds the row of the file; it is no secret. What proves the caller is
//! the secret: 256 random bits. The file holds the blake3 hash of the whole
//! token. A slow hash (argon2 and its kind) makes guessing of passwords dear,
//! which people choose; nobody guesses 256 random bits, however fast the hash
//! is. And a slow one would have to be computed for every call, which is a way
//! to keep a server busy.

use std::fmt::Write as _;

use headwater_store::Entropy;
use subtle::ConstantTimeEq as _;

/// How every token begins: for people, and for programs that look for leaked
/// ones.
pub const PREFIX: &str = "hwt_";

const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 64;

/// A token that was just made. Shown once, to whoever asked for it.
pub struct NewToken {
    /// For the client. Secret.
    pub text: String,
    /// For the file of rights.
    pub id: String,
    /// For the file of rights.
    pub hash: TokenHash,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken").field("id", &self.id).finish_non_exhaustive()
    }
}

impl NewToken {
    /// Draws a token. `entropy` has to be the operating system's.
    pub fn draw(entropy: &Entropy) -> Self {
        let id = hex(&entropy.u64().to_be_bytes());
        let secret = hex(&entropy.bytes16()) + &hex(&entropy.bytes16());
        let text = format!("{PREFIX}{id}_{secret}");
        let hash = TokenHash::of(&text);
        Self { text, id, hash }
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // A string takes whatever is written to it.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The id of what looks like a token.
pub(crate) fn id_of(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    let is_whole = is_id(id) && secret.len() == SECRET_DIGITS;
    is_whole.then_some(id)
}

pub(crate) fn is_id(text: &str) -> bool {
    let is_hex = |it: u8| it.is_ascii_digit() || (b'a'..=b'f').contains(&it);
    text.len() == ID_DIGITS && text.bytes().all(is_hex)
}

/// What is kept of a token.
#[derive(Clone, Debug)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    const PREFIX: &str = "blake3:";

    /// Of a whole token.
    pub fn of(token: &str) -> Self {
        Self(*blake3::hash(token.as_bytes()).as_bytes())
    }

    /// Reads what [`Self::to_text`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text.strip_prefix(Self::PREFIX)?).ok()?;
        Some(Self(*hash.as_bytes()))
    }

    /// For the file of rights.
    pub fn to_text(&self) -> String {
        format!("{}{}", Self::PREFIX, blake3::Hash::from_bytes(self.0).to_hex())
    }

    /// Whether it is of this token. Takes the same time whatever they have in
    /// common, so that an answer's time does not tell a stored hash.
    pub fn is_of(&self, token: &str) -> bool {
        self.0.ct_eq(&Self::of(token).0).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_alone() {
        let new = NewToken::draw(&Entropy::from_seed(1));
        let other = NewToken::draw(&Entropy::from_seed(2));
        let kept = TokenHash::parse(&new.hash.to_text()).unwrap();

        assert_eq!(id_of(&new.text), Some(new.id.as_str()));
        assert!(kept.is_of(&new.text));
        assert!(!kept.is_of(&other.text) && !kept.is_of(&new.text[..new.text.len() - 1]));
        assert!(!kept.to_text().contains(&new.text[new.text.len() - 20..]));
        assert!(!format!("{new:?}").contains(&new.text));
    }

    #[test]
    fn what_is_no_token_has_no_id() {
        let whole = NewToken::draw(&Entropy::from_seed(1)).text;
        for text in ["", "hwt_", "hwt_0_1", &whole[1..], &whole[..40], &whole.replace("hwt", "HWT")]
        {
            assert_eq!(id_of(text), None, "{text}");
        }
        for text in ["", "blake3:", "blake3:00", "sha256:", &"0".repeat(64)] {
            assert!(TokenHash::parse(text).is_none(), "{text}");
        }
    }
}
