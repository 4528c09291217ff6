//! Being written.

mod config;
mod consistency;
mod failure;
mod replica;
mod service;

pub use self::config::ReplicaConfig;
pub use self::consistency::Consistency;
pub use self::failure::ReadFailure;
pub use self::replica::{Replica, start};
pub use self::service::ReadRpc;
