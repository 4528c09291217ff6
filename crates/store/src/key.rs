//! Which keys a store takes. One rule for all adapters, so that a history can
//! move from one to another.

/// Longest key, in bytes, root prefix included: the limit of S3.
pub const KEY_LEN_BYTES_MAX: usize = 1024;

/// Longest part between two `/`, in bytes: the limit of most file systems.
pub const KEY_PART_LEN_BYTES_MAX: usize = 255;

/// The first part that a local directory keeps for its own files.
pub(crate) const OWN_FOLDER: &str = ".headwater";

/// Why a key is not taken. No adapter sends such a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is empty, or begins or ends with `/`, or has `//` in it.
    #[error("a key has an empty part: check for a leading, trailing or doubled `/`")]
    EmptyPart,
    /// A part is `.` or `..`.
    #[error("a key has the part `{part}`, which would leave its folder")]
    DotPart {
        /// The part.
        part: String,
    },
    /// A control character, NUL included. A listing in XML cannot carry it.
    #[error("a key holds a control character at byte {at_byte}")]
    ControlCharacter {
        /// Byte offset of the first such character.
        at_byte: usize,
    },
    /// The first part is the folder that a local directory keeps for itself.
    #[error("a key begins with `{OWN_FOLDER}`, which is reserved")]
    Reserved,
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
    if let Some(at_byte) = key.find(|it: char| it.is_control()) {
        return Err(KeyError::ControlCharacter { at_byte });
    }
    for part in key.split('/') {
        match part {
            "" => return Err(KeyError::EmptyPart),
            "." | ".." => return Err(KeyError::DotPart { part: part.into() }),
            _ if KEY_PART_LEN_BYTES_MAX < part.len() => {
                let len_bytes = part.len();
                return Err(KeyError::TooLong { len_bytes, max: KEY_PART_LEN_BYTES_MAX });
            }
            _ => (),
        }
    }
    if key.split('/').next() == Some(OWN_FOLDER) {
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
        for key in
            ["a", "a b/%2F+", "ключ/🔑", ".a", "a..b", "~", "a\\b", &"k/".repeat(511)[..1021]]
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
