//! 32-byte blake3 hashes, one type for each thing that is hashed.

use alloc::string::String;
use core::fmt;

/// Why text is not a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a hash: 64 lower-case hex digits are expected, after `blake3:` where a head says so")]
pub struct HashError;

macro_rules! hash_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Takes 32 stored bytes.
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 bytes.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// 64 lower-case hex digits.
            pub fn to_hex(self) -> String {
                blake3::Hash::from_bytes(self.0).to_hex().as_str().into()
            }

            /// Reads 64 lower-case hex digits.
            ///
            /// # Errors
            ///
            /// [`HashError`] for anything else.
            pub fn from_hex(hex: &str) -> Result<Self, HashError> {
                if hex.bytes().any(|it| it.is_ascii_uppercase()) {
                    return Err(HashError);
                }
                let hash = blake3::Hash::from_hex(hex).map_err(|_| HashError)?;
                Ok(Self(*hash.as_bytes()))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", &self.to_hex().as_str()[..12])
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex())
            }
        }
    };
}

hash_type! {
    /// Hash of an immutable object's bytes, as every reference carries it.
    ContentHash
}
hash_type! {
    /// Hash of a request's canonical bytes; tells a retry from a reused id.
    RequestHash
}
hash_type! {
    /// Hash over all changes up to one version: `chainHash` of the head.
    ChainHash
}

impl ContentHash {
    /// Hashes `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Hashes what parts make together.
    pub(crate) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }
}
