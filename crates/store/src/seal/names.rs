//! Hashes in the names of objects, sealed so that a name can be turned back.
//!
//! A name ends with a hash of the content, or of an operation id. Whoever sees
//! the bucket could try what it is the hash of. So the 64 digits become 96,
//! the same for the same hash under the same folder and staged revision.
//! Folders and staged revisions stay as they are, and with them the order that
//! a listing has between revisions. Nonces stay too: they say nothing.

use super::keyring::{Cipher, TAG_LEN_BYTES, parse_hex, to_hex};

/// Digits of a blake3 hash.
const HASH_DIGITS: usize = 64;

/// Digits of a sealed one.
const SEALED_DIGITS: usize = HASH_DIGITS + 2 * TAG_LEN_BYTES;

/// Digits of a staged revision, and the dash after it.
const STAGED_LEN: usize = 21;

/// The key under which an object is stored.
pub(super) fn seal(names: &Cipher, key: &str) -> String {
    let Some((start, hash)) = split(key, HASH_DIGITS) else { return key.into() };
    let mut bytes = hash;
    match names.seal(start.as_bytes(), &mut bytes, 0) {
        Ok(()) => format!("{start}{}", to_hex(&bytes)),
        // 32 bytes are never too long.
        Err(_) => key.into(),
    }
}

/// The key that an object is stored for. What is not a sealed name stays.
pub(super) fn open(names: &Cipher, stored: &str) -> String {
    let opened = split(stored, SEALED_DIGITS).and_then(|(start, sealed)| {
        let hash = names.open(start.as_bytes(), &sealed).ok()?;
        Some(format!("{start}{}", to_hex(&hash)))
    });
    opened.unwrap_or_else(|| stored.into())
}

/// Parts a key whose last part is `n_digits` hex digits, after a staged
/// revision or not.
fn split(key: &str, n_digits: usize) -> Option<(&str, Vec<u8>)> {
    let from = key.rfind('/').map_or(0, |at| at + 1);
    let name = key.get(from..)?;
    let is_staged = name.len() == STAGED_LEN + n_digits
        && name.bytes().take(STAGED_LEN - 1).all(|it| it.is_ascii_digit())
        && name.as_bytes()[STAGED_LEN - 1] == b'-';
    let at = if is_staged { STAGED_LEN } else { 0 };
    let digits = name.get(at..).filter(|it| it.len() == n_digits)?;
    Some((&key[..from + at], parse_hex(digits)?))
}
