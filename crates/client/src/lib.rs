//! The Headwater client: submits operations to writers and reads from replicas.
//!
//! In here: addresses and balancing, deadlines, retries that keep the operation
//! id and the issue version, version tokens, typed outcomes, transactions,
//! streams of operations, watches. Not in here: any decision of the protocol, and any
//! type of the wire but [`Changes`].
//!
//! ```no_run
//! use headwater_client::{Client, Consistency, Outcome};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder()
//!     .writers(["writer-0.example:7070", "writer-1.example:7070"])
//!     .replicas(["replicas.example:7071"])
//!     .build()?;
//! let session = client.session("datasets/events");
//!
//! let operation = client.operation().require_absent("user/7").put("user/7", "Ada");
//! match session.submit(operation).await? {
//!     Outcome::Accepted(accepted) => println!("version {}", accepted.state_version),
//!     Outcome::Rejected(rejected) => println!("in the way: {:?}", rejected.conflicts),
//!     Outcome::Unknown(unknown) => println!("look at the data: {unknown:?}"),
//! }
//!
//! // Reads its own write, from whichever replica.
//! let read = session.get("user/7", Consistency::Session).await?;
//! println!("{:?} at version {}", read.value, read.stamp.state_version);
//! # Ok(())
//! # }
//! ```
//!
//! # What a caller has to decide
//!
//! - **Outcomes** are three, and an error is none of them: see [`Outcome`] and
//!   [`SubmitError::determinacy`].
//! - **Ids.** [`Client::operation`] draws one. An operation that another process
//!   may send again needs an id that it can find again, and an issue version
//!   that does not move: [`Operation::new`] takes both.
//! - **Freshness** of a read: see [`Consistency`].
//!
//! # Invariants
//!
//! - A retry has the id and the issue version of the first attempt.
//! - What may have been applied is never reported as not applied, whatever later
//!   attempts say about themselves.
//! - An `unknown` outcome is told, not repeated.
//! - Every wait is bounded by the call's deadline, and every queue by a number.

mod address;
mod admin;
mod backoff;
mod call;
mod client;
mod credentials;
mod failure;
mod id;
mod limits;
mod network;
mod operation;
mod outcome;
mod pool;
mod random;
mod range;
mod read;
mod retention;
mod scan;
mod session;
mod stream;
mod submit;
mod trace;
mod txn;
mod usage;
mod watch;

pub use self::address::AddressError;
pub use self::admin::{History, HistoryError, Names};
pub use self::backoff::Backoff;
pub use self::call::RetryConfig;
pub use self::client::{Client, ClientBuilder, DEADLINE_DEFAULT};
pub use self::failure::{Determinacy, Failure, Reason};
pub use self::id::{HistoryId, HistoryIdError, OperationId, OperationIdError, Token, TokenError};
pub use self::network::{Connection, Network, SystemNetwork};
pub use self::operation::{IssueVersion, Operation};
pub use self::outcome::{Accepted, Conflict, ConflictKind, Outcome, Rejected, Unknown};
pub use self::range::KeyRange;
pub use self::read::{Changes, Consistency, Entry, Read, ReadError, Stamp, VersionAt};
pub use self::retention::{Pin, Restored, Retention};
pub use self::scan::{Scan, ScanOptions};
pub use self::session::{OtherHistory, Session};
pub use self::stream::{OnRefusal, StreamAnswer, StreamOptions};
pub use self::submit::{InDoubt, Lookup, SubmitError};
pub use self::txn::{Committed, Txn, TxnError, TxnOptions};
pub use self::usage::StoreUsage;
pub use self::watch::{
    SnapshotMode, Watch, WatchError, WatchEvent, WatchOptions, WatchedKind, WatchedMutation,
};
