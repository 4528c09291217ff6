//! Keys and values as NDJSON: one JSON object a line.
//!
//! ```json
//! {"key":"user/7","value":"Ada"}
//! {"keyBase64":"/wA=","valueBase64":"gA=="}
//! ```
//!
//! # Invariants
//!
//! - A line holds exactly one entry, whatever its bytes: JSON escapes newlines.
//! - What `write` wrote, `parse` reads back; an export is an import.

use bytes::Bytes;
use headwater_core::operation::{Key, Request};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::field::{self, FieldError};

/// Longest line, in bytes. A value of 1 MiB and a key of 1,024 bytes take up to
/// six times that where every byte is escaped.
pub(crate) const LINE_BYTES_MAX: usize = 8 << 20;

/// Why a line is not an entry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// Not one JSON object with the fields of an entry.
    #[error("not an entry: {0}")]
    Json(#[from] serde_json::Error),
    /// Its bytes.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// No key has no bytes.
    #[error("the key is empty")]
    KeyEmpty,
    /// A key is longer than a history takes.
    #[error("the key has {len_bytes} bytes, the limit is {max}", max = Key::LEN_BYTES_MAX)]
    KeyTooLong {
        /// Its length in bytes.
        len_bytes: usize,
    },
    /// A value is longer than a history takes.
    #[error("the value has {len_bytes} bytes, the limit is {max}", max = Request::VALUE_BYTES_MAX)]
    ValueTooLong {
        /// Its length in bytes.
        len_bytes: usize,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wire {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
}

/// Reads one line, without its newline.
pub(crate) fn parse(line: &[u8]) -> Result<(Bytes, Bytes), LineError> {
    let wire: Wire = serde_json::from_slice(line)?;
    let key = field::bytes("key", wire.key, wire.key_base64.as_deref())?;
    let value = field::bytes("value", wire.value, wire.value_base64.as_deref())?;
    match key.len() {
        0 => return Err(LineError::KeyEmpty),
        len_bytes if Key::LEN_BYTES_MAX < len_bytes => {
            return Err(LineError::KeyTooLong { len_bytes });
        }
        _ => {}
    }
    if Request::VALUE_BYTES_MAX < value.len() {
        return Err(LineError::ValueTooLong { len_bytes: value.len() });
    }
    Ok((key, value))
}

/// Writes one entry as a line, newline included.
pub(crate) fn write(lines: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let mut object = Map::new();
    field::put(&mut object, "key", key);
    field::put(&mut object, "value", value);
    lines.extend_from_slice(Value::Object(object).to_string().as_bytes());
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        for (key, value) in [
            (&b"a"[..], &b""[..]),
            (b"a\nb", b"{\"key\":\"x\"}\n"),
            ("é\u{2028}".as_bytes(), &[0xff]),
            (&all, &all),
        ] {
            let mut line = Vec::new();
            write(&mut line, key, value);

            assert_eq!(line.split(|&it| it == b'\n').count(), 2);
            let entry = parse(&line[..line.len() - 1]).unwrap();
            assert_eq!(entry, (Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        }
    }

    #[test]
    fn the_longest_entry_fits_a_line() {
        let (key, value) = ([1; Key::LEN_BYTES_MAX], vec![1; Request::VALUE_BYTES_MAX]);
        let mut line = Vec::new();
        write(&mut line, &key, &value);

        assert!(line.len() < LINE_BYTES_MAX);
        assert!(parse(&line).is_ok());
    }

    #[test]
    fn what_a_history_would_refuse_is_refused_here() {
        let message = |line: &str| parse(line.as_bytes()).unwrap_err().to_string();

        assert_eq!(message(r#"{"key":"","value":""}"#), "the key is empty");
        let long = format!(r#"{{"key":"{}","value":""}}"#, "k".repeat(1_025));
        assert_eq!(message(&long), "the key has 1025 bytes, the limit is 1024");
        let large = format!(r#"{{"key":"k","value":"{}"}}"#, "v".repeat((1 << 20) + 1));
        assert!(message(&large).starts_with("the value has 1048577 bytes"));
        assert!(message(r#"{"key":"k"}"#).contains("`value`"));
        for wrong in [r#"{"key":"k","value":"v","x":1}"#, r#"["k","v"]"#, "{}{}", r#"{"key":"k"#] {
            assert!(!message(wrong).is_empty());
        }
        assert!(matches!(parse(b"{\"key\":\"\xff\",\"value\":\"\"}"), Err(LineError::Json(_))));
    }
}
