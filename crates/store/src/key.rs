//! Which keys a store takes. One rule for all adapters, so that a history can
//! move from one to another.

/// Longest key, in bytes, root prefix included: the limit of S3.
pub const KEY_LEN_BYTES_MAX: usize = 1024;

/// Longest part between two `/`, in bytes: the limit of most file systems.
pub const KEY_PART_LEN_BYTES_MAX: usize = 255;

/// Most parts between `/`: the limit of Azure for names of blobs.
pub const KEY_PARTS_MAX: usize = 254;

/// The first part that a local directory keeps for its own files.
pub(crate) const OWN_FOLDER: &str = ".headwater";

/// The folder that Google Cloud Storage keeps for proofs of domains.
const ACME_FOLDER: &str = ".well-known/acme-challenge/";

/// Why a key is not taken. No adapter sends such a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is empty, or begins or ends with `/`, or has `//` in it.
    #[error("a key has an empty part: check for a leading, trailing or doubled `/`")]
    EmptyPart,
    /// A part ends with a dot: `.` and `..` would leave their folder, and Azure
    /// drops the dot of any other.
    #[error("a key has the part `{part}`, which ends with a dot")]
    DotPart {
        /// The part.
        part: String,
    },
    /// A control character, NUL included, or U+FFFE or U+FFFF. A listing in XML
    /// cannot carry it.
    #[error("a key holds a control character at byte {at_byte}")]
    ControlCharacter {
        /// Byte offset of the first such character.
        at_byte: usize,
    },
    /// A backslash. Azure makes a `/` of it.
    #[error("a key holds a backslash at byte {at_byte}")]
    Backslash {
        /// Byte offset of the first one.
        at_byte: usize,
    },
    /// The key begins with a folder that a local directory, or Google Cloud
    /// Storage, keeps for itself.
    #[error("a key begins with `{OWN_FOLDER}` or `{ACME_FOLDER}`, which are reserved")]
    Reserved,
    /// The key has too many parts.
    #[error("a key has {n_parts} parts, the limit is {KEY_PARTS_MAX}")]
    TooManyParts {
        /// How many it has, those of the root included where it is known.
        n_parts: usize,
    },
    /// The key, or a part of it, is too long.
    #[error("a key or a part of it is {len_bytes} bytes, the limit is {max}")]
    TooLong {
        /// Length of the key or of the part, in bytes.
        len_bytes: usize,
        /// The limit for it.
        max: usize,
    },
    /// One of two keys is a folder of the other, as `a` and `a/b` are. A bucket
    /// could hold both, a directory cannot.
    #[error("a key would have to be an object and a folder at once")]
    ObjectAndFolder,
}

/// Checks a key below a root whose prefix takes `root_len_bytes`.
pub(crate) fn check(key: &str, root_len_bytes: usize) -> Result<(), KeyError> {
    let len_bytes = root_len_bytes + key.len();
    if KEY_LEN_BYTES_MAX < len_bytes {
        return Err(KeyError::TooLong { len_bytes, max: KEY_LEN_BYTES_MAX });
    }
    let is_no_xml = |it: char| it.is_control() || matches!(it, '\u{fffe}' | '\u{ffff}');
    if let Some(at_byte) = key.find(is_no_xml) {
        return Err(KeyError::ControlCharacter { at_byte });
    }
    if let Some(at_byte) = key.find('\\') {
        return Err(KeyError::Backslash { at_byte });
    }
    for part in key.split('/') {
        match part {
            "" => return Err(KeyError::EmptyPart),
            part if part.ends_with('.') => {
                return Err(KeyError::DotPart { part: part.into() });
            }
            _ if KEY_PART_LEN_BYTES_MAX < part.len() => {
                let len_bytes = part.len();
                return Err(KeyError::TooLong { len_bytes, max: KEY_PART_LEN_BYTES_MAX });
            }
            _ => (),
        }
    }
    let n_parts = key.split('/').count();
    if KEY_PARTS_MAX < n_parts {
        return Err(KeyError::TooManyParts { n_parts });
    }
    if key.split('/').next() == Some(OWN_FOLDER) || key.starts_with(ACME_FOLDER) {
        return Err(KeyError::Reserved);
    }
    Ok(())
}

/// Checks what a listing begins with: anything, below a folder that could be.
pub(crate) fn check_prefix(prefix: &str, root_len_bytes: usize) -> Result<(), KeyError> {
    let folder = prefix.rfind('/').map_or("", |at| &prefix[..=at]);
    check_folder(folder, root_len_bytes)
}

/// Checks a folder prefix: empty, or a key that ends with `/`.
pub(crate) fn check_folder(prefix: &str, root_len_bytes: usize) -> Result<(), KeyError> {
    match prefix.strip_suffix('/') {
        Some(folder) => check(folder, root_len_bytes),
        None if prefix.is_empty() => Ok(()),
        None => Err(KeyError::EmptyPart),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_keys_are_taken_and_bad_keys_are_refused_by_rule() {
        let longest = format!("{}{}", "kkkk/".repeat(204), "kkkk");
        for key in
            ["a", "a b/%2F+", "ключ/🔑", ".a", "a..b", "~", &"k/".repeat(254)[..507], &longest]
        {
            assert_eq!(check(key, 0), Ok(()), "{key:?}");
        }
        let dot = |part: &str| KeyError::DotPart { part: part.into() };
        for (key, error) in [
            ("", KeyError::EmptyPart),
            ("/a", KeyError::EmptyPart),
            ("a/", KeyError::EmptyPart),
            ("a//b", KeyError::EmptyPart),
            ("..", dot("..")),
            ("a/../b", dot("..")),
            ("a/./b", dot(".")),
            ("...", dot("...")),
            ("a./b", dot("a.")),
            ("a\\b", KeyError::Backslash { at_byte: 1 }),
            ("a\u{ffff}", KeyError::ControlCharacter { at_byte: 1 }),
            (".well-known/acme-challenge/x", KeyError::Reserved),
            (&"k/".repeat(255)[..509], KeyError::TooManyParts { n_parts: 255 }),
            ("a\0b", KeyError::ControlCharacter { at_byte: 1 }),
            ("a/\u{7f}", KeyError::ControlCharacter { at_byte: 2 }),
            (".headwater/x", KeyError::Reserved),
        ] {
            assert_eq!(check(key, 0), Err(error), "{key:?}");
        }
        let max = KEY_PART_LEN_BYTES_MAX;
        assert_eq!(check(&"a".repeat(256), 0), Err(KeyError::TooLong { len_bytes: 256, max }));
        let max = KEY_LEN_BYTES_MAX;
        assert_eq!(check("a", 1024), Err(KeyError::TooLong { len_bytes: 1025, max }));
    }

    #[test]
    fn a_folder_is_empty_or_ends_with_a_slash() {
        assert_eq!(check_folder("", 0), Ok(()));
        assert_eq!(check_folder("a/b/", 0), Ok(()));
        for prefix in ["a", "/", "a//"] {
            assert_eq!(check_folder(prefix, 0), Err(KeyError::EmptyPart), "{prefix:?}");
        }
    }
}
