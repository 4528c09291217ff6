//! The keys of a sealed store, and the text that they are read from.
//!
//! ```text
//! # comment
//! names 64 hex digits             seals the hashes in object names; never changes
//! key 2026-11 64 hex digits       the first one seals, and opens
//! key 2026-05 64 hex digits       opens what was sealed with it
//! ```

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::error::Unspecified;

/// Most keys in a keyring. Rotation by the month fills it in five years.
const KEYS_MAX: usize = 64;

/// Longest text of a keyring, in bytes: every line at its longest, with room
/// for comments.
pub(crate) const KEYRING_LEN_BYTES_MAX: usize = 64 << 10;

/// Bytes of a secret.
const SECRET_LEN_BYTES: usize = 32;

/// Bytes of an authentication tag.
pub(super) const TAG_LEN_BYTES: usize = 16;

/// Names a key, in headers and in messages. Not secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(String);

impl KeyId {
    /// Longest id, in bytes. Every sealed object repeats it.
    pub const LEN_BYTES_MAX: usize = 32;

    /// Takes 1 to 32 of `[A-Za-z0-9._-]`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"._-".contains(&it);
        let is_id = (1..=Self::LEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_plain);
        is_id.then(|| Self(text.into()))
    }

    /// The id as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why text is not a keyring. No variant repeats what stood in the text: it
/// may be a secret in the wrong place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// A line is none of the three kinds.
    #[error(
        "line {line} of the keys is neither `names SECRET`, nor `key ID SECRET`, nor a comment \
         that begins with `#`; a secret is 64 hex digits, an id 1 to 32 of [A-Za-z0-9._-]"
    )]
    Line {
        /// Number of the line, from 1.
        line: usize,
    },
    /// Two keys have one id.
    #[error("the keys name `{id}` twice")]
    Twice {
        /// The id.
        id: KeyId,
    },
    /// There is not exactly one `names` line.
    #[error("the keys have {found} lines `names SECRET`; there is one, and it never changes")]
    Names {
        /// How many there are.
        found: usize,
    },
    /// There is no `key` line, or there are too many.
    #[error("the keys have {found} lines `key ID SECRET`; there are 1 to {KEYS_MAX}")]
    Keys {
        /// How many there are.
        found: usize,
    },
    /// The text is too long to be a keyring.
    #[error("the keys are {len_bytes} bytes, the limit is {KEYRING_LEN_BYTES_MAX}")]
    TooLong {
        /// Length of the text, in bytes.
        len_bytes: usize,
    },
    /// The library takes no such key. Not expected: all have the right length.
    #[error("the cipher refuses a key")]
    Cipher,
}

/// The keys of a sealed store: one that seals, all of them to open.
pub struct Keyring {
    /// Not empty; the first one seals.
    keys: Vec<ObjectKey>,
    names: Cipher,
}

/// A key for the content of objects.
#[derive(Debug)]
pub(super) struct ObjectKey {
    pub(super) id: KeyId,
    /// Tells this key, together with the secret for names, from another one
    /// under the same id.
    pub(super) check: [u8; 8],
    pub(super) cipher: Cipher,
}

/// AES-256-GCM-SIV (RFC 8452) with a nonce that follows from the associated
/// data, so that equal inputs give equal bytes.
///
/// Why this is sound: the mode is made to withstand repeated nonces. Then all
/// that two ciphertexts show is whether context and plaintext are both equal.
/// Contexts hold the object's key, so nonces hardly repeat in the first place,
/// but for the heads of one history.
#[derive(Debug)]
pub(super) struct Cipher {
    key: LessSafeKey,
    nonces: NonceSecret,
}

struct NonceSecret([u8; 32]);

impl fmt::Debug for NonceSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NonceSecret")
    }
}

impl Cipher {
    fn new(secret: &[u8; SECRET_LEN_BYTES]) -> Result<Self, Unspecified> {
        let key = blake3::derive_key("headwater seal 1: cipher", secret);
        let nonces = NonceSecret(blake3::derive_key("headwater seal 1: nonces", secret));
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, &key)?);
        Ok(Self { key, nonces })
    }

    fn nonce(&self, context: &[u8]) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        let hash = blake3::keyed_hash(&self.nonces.0, context);
        nonce.copy_from_slice(&hash.as_bytes()[..NONCE_LEN]);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Seals `buffer[from..]` in place and appends the tag.
    pub(super) fn seal(
        &self,
        context: &[u8],
        buffer: &mut Vec<u8>,
        from: usize,
    ) -> Result<(), Unspecified> {
        let aad = Aad::from(context);
        let part = &mut buffer[from..];
        let tag = self.key.seal_in_place_separate_tag(self.nonce(context), aad, part)?;
        buffer.extend_from_slice(tag.as_ref());
        Ok(())
    }

    /// Opens what [`Cipher::seal`] made.
    pub(super) fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Unspecified> {
        let mut buffer = sealed.to_vec();
        let aad = Aad::from(context);
        let n_bytes = self.key.open_in_place(self.nonce(context), aad, &mut buffer)?.len();
        buffer.truncate(n_bytes);
        Ok(buffer)
    }
}

impl Keyring {
    /// Reads the text of a keyring; see the module's page for its lines.
    ///
    /// # Errors
    ///
    /// [`KeyringError`] says which line or rule is broken.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        if KEYRING_LEN_BYTES_MAX < text.len() {
            return Err(KeyringError::TooLong { len_bytes: text.len() });
        }
        let mut names: Vec<[u8; SECRET_LEN_BYTES]> = Vec::new();
        let mut keys: Vec<(KeyId, [u8; SECRET_LEN_BYTES])> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let bad = || KeyringError::Line { line: i + 1 };
            let mut words = line.split_whitespace();
            let found = (words.next(), words.next(), words.next(), words.next());
            match found {
                (None, ..) => {}
                (Some(word), ..) if word.starts_with('#') => {}
                (Some("names"), Some(secret), None, None) => {
                    names.push(parse_secret(secret).ok_or_else(bad)?);
                }
                (Some("key"), Some(id), Some(secret), None) => {
                    let id = KeyId::parse(id).ok_or_else(bad)?;
                    let secret = parse_secret(secret).ok_or_else(bad)?;
                    if keys.iter().any(|(known, _)| *known == id) {
                        return Err(KeyringError::Twice { id });
                    }
                    keys.push((id, secret));
                }
                _ => return Err(bad()),
            }
        }
        let [names] = names[..] else { return Err(KeyringError::Names { found: names.len() }) };
        if keys.is_empty() || KEYS_MAX < keys.len() {
            return Err(KeyringError::Keys { found: keys.len() });
        }
        Self::from_secrets(&names, keys).map_err(|Unspecified| KeyringError::Cipher)
    }

    fn from_secrets(
        names: &[u8; SECRET_LEN_BYTES],
        keys: Vec<(KeyId, [u8; SECRET_LEN_BYTES])>,
    ) -> Result<Self, Unspecified> {
        let object_key = |(id, secret): (KeyId, [u8; SECRET_LEN_BYTES])| {
            let both = [secret, *names].concat();
            let mut check = [0; 8];
            check.copy_from_slice(&blake3::derive_key("headwater seal 1: check", &both)[..8]);
            Ok(ObjectKey { id, check, cipher: Cipher::new(&secret)? })
        };
        let keys = keys.into_iter().map(object_key).collect::<Result<_, Unspecified>>()?;
        Ok(Self { keys, names: Cipher::new(names)? })
    }

    /// Id of the key that seals.
    pub fn sealing_id(&self) -> &KeyId {
        &self.sealing().id
    }

    /// Ids of all keys, that which seals first.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.keys.iter().map(|it| &it.id)
    }

    pub(super) fn sealing(&self) -> &ObjectKey {
        &self.keys[0]
    }

    pub(super) fn opening(&self, id: &str) -> Option<&ObjectKey> {
        self.keys.iter().find(|it| it.id.as_str() == id)
    }

    pub(super) fn names(&self) -> &Cipher {
        &self.names
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ids()).finish()
    }
}

fn parse_secret(text: &str) -> Option<[u8; SECRET_LEN_BYTES]> {
    // Upper case too: a secret may come from any tool.
    let bytes = parse_hex(&text.to_ascii_lowercase())?;
    bytes.try_into().ok()
}

/// Reads lower-case hex digits, an even number of them.
pub(super) fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |it: u8| match it {
        b'0'..=b'9' => Some(it - b'0'),
        b'a'..=b'f' => Some(it - b'a' + 10),
        _ => None,
    };
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4) | digit(*low)?)).collect()
}

/// Writes lower-case hex digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |it: u8| char::from(DIGITS[usize::from(it & 15)]);
    bytes.iter().flat_map(|it| [digit(it >> 4), digit(*it)]).collect()
}
