//! Identifiers. Each is its own type, so two of them cannot be swapped.

#[cfg(test)]
mod id_test;
mod writer_address;

use alloc::string::String;
use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;

pub use self::writer_address::{WriterAddress, WriterAddressError};
use crate::keys;

/// Names a history, and is its key prefix below the root of the store.
///
/// Parts separated by `/`; each part is one or more of `[A-Za-z0-9._-]`, does
/// not end with `.`, and is not a word that the object layout uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryName(String);

/// Why a string is not a [`HistoryName`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryNameError {
    /// The string is empty.
    #[error("a history name is empty")]
    Empty,
    /// The string is longer than [`HistoryName::LEN_BYTES_MAX`].
    #[error("a history name is {len_bytes} bytes, the limit is {max}", max = HistoryName::LEN_BYTES_MAX)]
    TooLong {
        /// Length of the rejected string, in bytes.
        len_bytes: usize,
    },
    /// A part is longer than [`HistoryName::PART_LEN_BYTES_MAX`].
    #[error("a part of a history name is {len_bytes} bytes, the limit is {max}", max = HistoryName::PART_LEN_BYTES_MAX)]
    PartTooLong {
        /// Length of the part, in bytes.
        len_bytes: usize,
    },
    /// A part between two `/` is empty, or the name begins or ends with `/`.
    #[error("a history name has an empty part: check for a leading, trailing or doubled `/`")]
    EmptyPart,
    /// A part ends with a dot: `.` and `..` would leave the prefix, and some
    /// stores drop the dot of any other.
    #[error("a history name has the part `{part}`, which ends with a dot")]
    DotPart {
        /// The part.
        part: String,
    },
    /// A character outside `[A-Za-z0-9._/-]`.
    #[error("a history name holds a character outside [A-Za-z0-9._/-] at byte {at_byte}")]
    BadCharacter {
        /// Byte offset of the first such character.
        at_byte: usize,
    },
    /// A part is a word of the object layout, such as `changes` or `head.json`.
    #[error("a history name has the part `{part}`, which the object layout reserves")]
    Reserved {
        /// The part.
        part: String,
    },
}

/// Names are ordered and hashed as their text: a map by name can be asked for a
/// range of texts.
impl Borrow<str> for HistoryName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl HistoryName {
    /// Longest name, in bytes. S3 keys end at 1,024 bytes; this leaves room for
    /// a root prefix and the longest object name (110 bytes).
    pub const LEN_BYTES_MAX: usize = 256;

    /// Longest part between two `/`, in bytes: what file systems take as a name.
    pub const PART_LEN_BYTES_MAX: usize = 255;

    /// Whether a name may begin with `prefix`.
    pub fn may_begin_with(prefix: &str) -> bool {
        // The shortest way on: a character, which also ends a part that could
        // not stand alone.
        prefix.len() < Self::LEN_BYTES_MAX && Self::parse(&alloc::format!("{prefix}x")).is_ok()
            || Self::parse(prefix).is_ok()
    }

    /// Checks `text` and takes it as a name.
    ///
    /// # Errors
    ///
    /// [`HistoryNameError`] names the rule that `text` breaks.
    pub fn parse(text: &str) -> Result<Self, HistoryNameError> {
        if text.is_empty() {
            return Err(HistoryNameError::Empty);
        }
        if Self::LEN_BYTES_MAX < text.len() {
            return Err(HistoryNameError::TooLong { len_bytes: text.len() });
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        if let Some(at_byte) = text.find(|c| !is_plain(c)) {
            return Err(HistoryNameError::BadCharacter { at_byte });
        }
        for part in text.split('/') {
            match part {
                "" => return Err(HistoryNameError::EmptyPart),
                part if Self::PART_LEN_BYTES_MAX < part.len() => {
                    return Err(HistoryNameError::PartTooLong { len_bytes: part.len() });
                }
                part if part.ends_with('.') => {
                    return Err(HistoryNameError::DotPart { part: part.into() });
                }
                // Names nest ("a" and "a/b" are two histories), so a part that
                // is also a folder or file of the layout would let one history
                // write into another.
                part if keys::RESERVED_PARTS.contains(&part) => {
                    return Err(HistoryNameError::Reserved { part: part.into() });
                }
                _ => (),
            }
        }
        Ok(Self(text.into()))
    }

    /// The name as it appears in keys and requests.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HistoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why text is not 32 lower-case hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id: 32 lower-case hex digits are expected")]
pub struct HexIdError;

fn parse_hex16(text: &str) -> Result<[u8; 16], HexIdError> {
    let digits = text.as_bytes();
    if digits.len() != 32 {
        return Err(HexIdError);
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return Err(HexIdError) };
        *byte = (hex_digit(*high)? << 4) | hex_digit(*low)?;
    }
    Ok(bytes)
}

const fn hex_digit(digit: u8) -> Result<u8, HexIdError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(HexIdError),
    }
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            /// Takes 16 random bytes, or 16 stored ones.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The 16 bytes.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }

            /// Reads 32 lower-case hex digits.
            ///
            /// # Errors
            ///
            /// [`HexIdError`] for anything else.
            pub fn parse(text: &str) -> Result<Self, HexIdError> {
                parse_hex16(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

random_id! {
    /// Tells one history from another that later got the same name.
    HistoryId
}
random_id! {
    /// Drawn afresh for every publication and every change entry's name.
    Nonce
}

/// Names one logical operation; the same across every retry of it.
///
/// Chosen by the caller, unique within a history for as long as a retry may
/// come. Shared: question, change, receipt and whoever waits have one each.
///
/// Ordered by a hash first, which most comparisons end with: an index of hundreds
/// of thousands would otherwise read the text of a dozen ids, each somewhere in
/// memory, to find one. Ids that are made to collide are told apart by their
/// text, and cost no more than without it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId {
    hash: u64,
    text: Arc<str>,
}

/// Why a string is not an [`OperationId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationIdError {
    /// The string is empty.
    #[error("operation id is empty")]
    Empty,
    /// The string is longer than [`OperationId::LEN_BYTES_MAX`].
    #[error("operation id is {len_bytes} bytes, the limit is {max}", max = OperationId::LEN_BYTES_MAX)]
    TooLong {
        /// Length of the rejected string, in bytes.
        len_bytes: usize,
    },
    /// The string holds a character that is not `[A-Za-z0-9._:-]`.
    #[error("operation id holds a character outside [A-Za-z0-9._:-] at byte {at_byte}")]
    BadCharacter {
        /// Byte offset of the first such character.
        at_byte: usize,
    },
}

impl OperationId {
    /// Longest accepted id, in bytes. Every retained receipt repeats it.
    pub const LEN_BYTES_MAX: usize = 64;

    /// Checks `text` and takes it as an id.
    ///
    /// # Errors
    ///
    /// [`OperationIdError`] when `text` is empty, too long, or holds a
    /// character that would need escaping in a log line or a command.
    pub fn parse(text: &str) -> Result<Self, OperationIdError> {
        if text.is_empty() {
            return Err(OperationIdError::Empty);
        }
        if Self::LEN_BYTES_MAX < text.len() {
            return Err(OperationIdError::TooLong { len_bytes: text.len() });
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-');
        if let Some(at_byte) = text.find(|c| !is_plain(c)) {
            return Err(OperationIdError::BadCharacter { at_byte });
        }
        // FNV-1a, 64 bits.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Ok(Self { hash, text: text.into() })
    }

    /// The id as given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OperationId").field(&self.text).finish()
    }
}

/// Names a pin: a version that retention keeps.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PinName(String);

/// Why a string is not a [`PinName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pin's name is 1 to {max} of [A-Za-z0-9._:-]", max = PinName::LEN_BYTES_MAX)]
pub struct PinNameError;

impl PinName {
    /// Longest name, in bytes. The head repeats it as long as the pin lasts.
    pub const LEN_BYTES_MAX: usize = 64;

    /// Checks `text` and takes it as a name.
    ///
    /// # Errors
    ///
    /// [`PinNameError`].
    pub fn parse(text: &str) -> Result<Self, PinNameError> {
        let is_plain =
            |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b':' | b'-');
        let is_name =
            !text.is_empty() && text.len() <= Self::LEN_BYTES_MAX && text.bytes().all(is_plain);
        if is_name { Ok(Self(text.into())) } else { Err(PinNameError) }
    }

    /// The name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PinName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The store's comparison token for one revision of the head.
///
/// Opaque: compared for equality and handed back in `If-Match` or
/// `If-None-Match`, never ordered and never parsed. State versions order
/// history; tags do not. A store that compares by generation fills `version`,
/// one that compares by `ETag` fills `e_tag`; the tag carries whatever it got.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    e_tag: Option<String>,
    version: Option<String>,
}

impl Tag {
    /// A tag from an `ETag`, exactly as the store returned it.
    pub fn new(e_tag: impl Into<String>) -> Self {
        Self { e_tag: Some(e_tag.into()), version: None }
    }

    /// Wraps what the store returned; `None` when it returned neither, since
    /// nothing could ever be compared with it.
    pub fn from_parts(e_tag: Option<String>, version: Option<String>) -> Option<Self> {
        (e_tag.is_some() || version.is_some()).then_some(Self { e_tag, version })
    }

    /// The `ETag`, if the store gave one.
    pub fn e_tag(&self) -> Option<&str> {
        self.e_tag.as_deref()
    }

    /// The generation or version id, if the store gave one.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }
}
