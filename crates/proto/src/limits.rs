//! Limits of the wire that both ends have to know.

/// Largest message that either end accepts, in bytes. An operation's keys and
/// values together stay under 4 MiB, as do the entries of a batch read: this is
/// twice that, so that framing never is what refuses a request.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// Operations of one `SubmitStream` that may be unanswered at a time.
pub const STREAM_UNANSWERED_MAX: usize = 4_096;

/// Longest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 1 << 20;

/// Most bytes of one operation, keys and values together.
pub const OPERATION_BYTES_MAX: usize = 4 << 20;

/// Preconditions of one operation.
pub const PRECONDITIONS_MAX: usize = 1_024;

/// Mutations of one operation.
pub const MUTATIONS_MAX: usize = 1_024;
