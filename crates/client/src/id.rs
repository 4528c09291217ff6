//! Identifiers, checked on the way in, so that a mistake is found before a
//! request is sent.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Names one operation; the same across every retry of it, and unique within
/// its history for ever.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(Arc<str>);

/// Why text is not an [`OperationId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an operation id is 1 to 64 bytes of [A-Za-z0-9._:-]; this is {text:?}")]
pub struct OperationIdError {
    /// The rejected text.
    pub text: String,
}

impl OperationId {
    /// Longest id, in bytes.
    pub const LEN_BYTES_MAX: usize = 64;

    /// Takes an id that the caller has made, for example from the name of the
    /// input that the operation stands for.
    ///
    /// # Errors
    ///
    /// [`OperationIdError`].
    pub fn new(text: impl Into<String>) -> Result<Self, OperationIdError> {
        let text = text.into();
        let is_allowed =
            |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b':' | b'-');
        let has_length = (1..=Self::LEN_BYTES_MAX).contains(&text.len());
        if has_length && text.bytes().all(is_allowed) {
            Ok(Self(text.into()))
        } else {
            Err(OperationIdError { text })
        }
    }

    /// 128 random bits as 26 characters: two of them never meet.
    pub(crate) fn from_random(bytes: [u8; 16]) -> Self {
        const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
        let number = u128::from_be_bytes(bytes);
        let text: String = (0..26)
            .rev()
            .map(|place| char::from(DIGITS[(number >> (5 * place) & 31) as usize]))
            .collect();
        Self(text.into())
    }

    /// The id as sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OperationId {
    type Err = OperationIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The id that a history got at its creation. A history that was deleted and
/// created again under one name has another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryId(Arc<str>);

/// Why text is not a [`HistoryId`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a history id is 32 lower-case hex digits; this is {text:?}")]
pub struct HistoryIdError {
    /// The rejected text.
    pub text: String,
}

impl HistoryId {
    /// Takes an id as an answer gave it.
    ///
    /// # Errors
    ///
    /// [`HistoryIdError`].
    pub fn new(text: impl Into<String>) -> Result<Self, HistoryIdError> {
        let text = text.into();
        let is_digit = |it: u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == 32 && text.bytes().all(is_digit) {
            Ok(Self(text.into()))
        } else {
            Err(HistoryIdError { text })
        }
    }

    pub(crate) fn from_random(bytes: [u8; 16]) -> Self {
        Self(format!("{:032x}", u128::from_be_bytes(bytes)).into())
    }

    /// The id as sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HistoryId {
    type Err = HistoryIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::new(text)
    }
}

impl fmt::Debug for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for HistoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The newest state version of one history that somebody has seen. Whoever
/// holds it can read what was written up to it, from any replica.
///
/// As text, `HISTORY_ID@VERSION`: to hand to another process.
///
/// ```
/// use headwater_client::Token;
///
/// let token: Token = "0123456789abcdef0123456789abcdef@42".parse()?;
/// assert_eq!(token.state_version, 42);
/// assert_eq!(token.to_string(), "0123456789abcdef0123456789abcdef@42");
/// # Ok::<(), headwater_client::TokenError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Which history. Versions do not compare across ids.
    pub history_id: HistoryId,
    /// The version seen.
    pub state_version: u64,
}

/// Why text is not a [`Token`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a version token is HISTORY_ID@VERSION; this is {text:?}")]
pub struct TokenError {
    /// The rejected text.
    pub text: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.history_id, self.state_version)
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (id, version) = text.split_once('@')?;
            Some(Self {
                history_id: HistoryId::new(id).ok()?,
                state_version: version.parse().ok()?,
            })
        };
        read().ok_or_else(|| TokenError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_operation_ids_keep_all_their_bits() {
        let zero = OperationId::from_random([0; 16]);
        let all = OperationId::from_random([0xff; 16]);

        assert_eq!(zero.as_str(), "0".repeat(26));
        assert_eq!(all.as_str(), format!("7{}", "z".repeat(25)));
        assert_eq!(OperationId::new(all.as_str()), Ok(all));
    }

    #[test]
    fn operation_ids_are_checked() {
        assert!(OperationId::new("a.B_c:1-2").is_ok());
        assert!(OperationId::new("x".repeat(64)).is_ok());
        for text in ["", "a b", "a/b", "é", &"x".repeat(65)] {
            assert!(OperationId::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn tokens_are_checked() {
        let id = "0123456789abcdef0123456789abcdef";
        for text in [id.to_owned(), format!("{id}@"), format!("{id}@-1"), "abc@1".to_owned()] {
            assert!(text.parse::<Token>().is_err(), "{text:?}");
        }
    }
}
