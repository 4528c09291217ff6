//! Preconditions of the commands that write one key.

use bytes::Bytes;
use clap::Args;
use headwater_client::Operation;

/// What must hold of the key, or nothing is changed. Several may be given; all
/// must hold.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_field_names, reason = "the names are those of the options")]
pub struct ConditionOptions {
    /// Only if the key has a value.
    #[arg(long, conflicts_with = "if_absent", help_heading = "Preconditions")]
    pub if_exists: bool,
    /// Only if the key has no value.
    #[arg(long, help_heading = "Preconditions")]
    pub if_absent: bool,
    /// Only if the key was last written at this very version.
    #[arg(long, value_name = "VERSION", help_heading = "Preconditions")]
    pub if_version: Option<u64>,
    /// Only if the key was neither written nor deleted after this version.
    #[arg(long, value_name = "VERSION", help_heading = "Preconditions")]
    pub if_unchanged_since: Option<u64>,
    /// Only if the key has this value.
    #[arg(long, value_name = "VALUE", help_heading = "Preconditions")]
    pub if_value: Option<String>,
}

impl ConditionOptions {
    /// `operation`, with the preconditions on `key`.
    pub(crate) fn require(&self, mut operation: Operation, key: &Bytes) -> Operation {
        if self.if_exists {
            operation = operation.require_exists(key.clone());
        }
        if self.if_absent {
            operation = operation.require_absent(key.clone());
        }
        if let Some(version) = self.if_version {
            operation = operation.require_version(key.clone(), version);
        }
        if let Some(version) = self.if_unchanged_since {
            operation = operation.require_unchanged(key.clone(), version);
        }
        if let Some(value) = &self.if_value {
            operation = operation.require_value(key.clone(), value.clone());
        }
        operation
    }
}
