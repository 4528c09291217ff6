//! An S3 endpoint for tests: one bucket in memory, conditional writes that hold
//! under any race, faults at exactly the request that a test names, and the
//! conduct of servers that are less careful. The same bucket also speaks the XML
//! API of Google Cloud Storage ([`GcsDouble`]).
//!
//! In here: the protocol over a socket, so that a real client is under test.
//! Not in here: durability, more than one bucket, versions.
//!
//! ```text
//! client -> socket -> faults and log -> s3s -> objects under one lock
//!                     (front)          (keys)  (objects)
//!                          conduct: at every request
//! ```
//!
//! ```no_run
//! # use headwater_s3_double::{Fault, Op, S3Double};
//! # async fn example() -> std::io::Result<()> {
//! let mut s3 = S3Double::start().await?;
//! s3.faults().on_next(Op::Put, "head.json", Fault::close_after());
//! s3.stop().await;
//! s3.restart().await?;
//! # Ok(())
//! # }
//! ```

mod conduct;
mod fault;
mod front;
mod gate;
mod gcs;
mod keys;
mod listing;
mod manners;
mod objects;
mod op;
mod server;
mod stored;
mod uploads;

pub use self::conduct::{
    Compared, Completion, ConditionalReads, Conditions, Conduct, LifecycleRule, Ranges, Refusal,
    Tags, UnknownConduct, Versioning, WriteLimit,
};
pub use self::fault::{Fault, Faults, Rule, Wait};
pub use self::gate::Gate;
pub use self::keys::TemporaryKey;
pub use self::op::{Op, Request, Requests};
pub use self::server::{GcsDouble, S3Double};

/// Name of the only bucket. Requests to another one are answered with
/// `NoSuchBucket`.
pub const BUCKET: &str = "headwater";

/// Access key id that is accepted; so are requests without a signature.
pub const ACCESS_KEY_ID: &str = "test";

/// Its secret.
pub const SECRET_ACCESS_KEY: &str = "testsecret";

/// Access token that [`GcsDouble`] accepts.
pub const ACCESS_TOKEN: &str = "testtoken";
