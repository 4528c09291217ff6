//! Bytes for people.

use std::fmt;

/// Displays bytes on one line: text as it is, what would disturb a terminal or
/// a table escaped, bytes that are not UTF-8 as `\xNN`.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '\\' | '\t' | '\n' | '\r' => write!(f, "{}", char.escape_default())?,
                    '\0'..='\x1f' | '\x7f' => write!(f, "\\x{:02x}", u32::from(char))?,
                    _ if char.is_control() => write!(f, "{}", char.escape_unicode())?,
                    _ => f.write_char(char)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// The same, cut after `chars_max` characters.
pub(crate) fn shortened(bytes: &[u8], chars_max: usize) -> String {
    // A character takes four bytes at most.
    let start = &bytes[..bytes.len().min(chars_max * 4)];
    let full = Shown(start).to_string();
    let cut = full.char_indices().nth(chars_max).map(|it| it.0);
    if cut.is_none() && start.len() == bytes.len() {
        return full;
    }
    let size_bytes = bytes.len();
    format!("{}… ({size_bytes} bytes)", &full[..cut.unwrap_or(full.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_disturbs_a_terminal_is_escaped() {
        let shown = |bytes: &[u8]| Shown(bytes).to_string();

        assert_eq!(shown("a é 日".as_bytes()), "a é 日");
        assert_eq!(shown(b"a\tb\nc\\d\x1b\0"), "a\\tb\\nc\\\\d\\x1b\\x00");
        assert_eq!(shown(&[b'a', 0xff, 0xfe, b'b']), "a\\xff\\xfeb");
    }

    #[test]
    fn long_values_say_how_long() {
        assert_eq!(shortened(b"abc", 3), "abc");
        assert_eq!(shortened(b"abcd", 3), "abc… (4 bytes)");
        assert_eq!(shortened("éééé".as_bytes(), 3), "ééé… (8 bytes)");
        assert_eq!(shortened(&[b'x'; 100], 5), "xxxxx… (100 bytes)");
    }
}
