//! Bytes in JSON: text where they are text, base64 under another name where
//! they are not.
//!
//! ```json
//! {"key": "user/7", "valueBase64": "/wA="}
//! ```
//!
//! # Invariant
//!
//! What is written is read back to the same bytes, whatever they are: text that
//! JSON can hold is exactly what UTF-8 can.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

/// Why a pair of fields is not one byte string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FieldError {
    /// Neither is there.
    #[error("`{name}` or `{name}Base64` is missing")]
    Missing {
        /// The plain name.
        name: &'static str,
    },
    /// Both are there.
    #[error("`{name}` and `{name}Base64` are both given; give one")]
    Both {
        /// The plain name.
        name: &'static str,
    },
    /// The base64 field is not base64 (RFC 4648, section 4, padded).
    #[error("`{name}Base64` is not base64")]
    NotBase64 {
        /// The plain name.
        name: &'static str,
    },
}

/// Reads the bytes from `name` or `nameBase64`.
pub(crate) fn bytes(
    name: &'static str,
    text: Option<String>,
    base64: Option<&str>,
) -> Result<Bytes, FieldError> {
    optional(name, text, base64)?.ok_or(FieldError::Missing { name })
}

/// The same, where neither may be given.
pub(crate) fn optional(
    name: &'static str,
    text: Option<String>,
    base64: Option<&str>,
) -> Result<Option<Bytes>, FieldError> {
    match (text, base64) {
        (Some(_), Some(_)) => Err(FieldError::Both { name }),
        (Some(text), None) => Ok(Some(text.into())),
        (None, Some(text)) => match decode(text) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(FieldError::NotBase64 { name }),
        },
        (None, None) => Ok(None),
    }
}

/// Reads base64; none for what is not.
pub(crate) fn decode(text: &str) -> Option<Bytes> {
    STANDARD.decode(text).ok().map(Bytes::from)
}

/// Writes base64.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Writes the bytes to `name`, or to `nameBase64` where they are not UTF-8.
pub(crate) fn put(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}Base64"), encode(bytes).into()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(bytes: &[u8]) -> Bytes {
        let mut object = Map::new();
        put(&mut object, "key", bytes);
        let line = Value::Object(object).to_string();
        assert!(!line.contains('\n'));
        let object: Map<String, Value> = serde_json::from_str(&line).unwrap();
        let text = |name| object.get(name).map(|it: &Value| it.as_str().unwrap().to_owned());
        super::bytes("key", text("key"), text("keyBase64").as_deref()).unwrap()
    }

    #[test]
    fn odd_bytes_come_back() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let surrogate = [0xed, 0xa0, 0x80];
        for bytes in [
            &b""[..],
            b"plain",
            b"quote \" backslash \\ newline \n return \r nul \0",
            "\u{2028} é \u{10ffff} \u{feff}".as_bytes(),
            &[0xff, 0],
            &surrogate,
            &all,
        ] {
            assert_eq!(round_trip(bytes), bytes);
        }
    }

    #[test]
    fn a_pair_has_to_be_one_byte_string() {
        let text = || Some("a".to_owned());
        assert_eq!(bytes("key", None, None), Err(FieldError::Missing { name: "key" }));
        assert_eq!(bytes("key", text(), Some("YQ==")), Err(FieldError::Both { name: "key" }));
        for wrong in ["YQ", "YQ=", "Y Q=", "ÿ", "YR=="] {
            let error = bytes("key", None, Some(wrong)).unwrap_err();
            assert_eq!(error, FieldError::NotBase64 { name: "key" }, "{wrong}");
        }
    }
}
