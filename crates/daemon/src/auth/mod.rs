//! Who calls, and what they may do.
//!
//! ```text
//! connection --(certificate)--+
//!                             v
//! request --(bearer)--> Authenticator --> Caller --(in the request)--> service
//!                          ^                                           allow()
//!                          file of rights, JWKS: read again when they change
//! ```
//!
//! In here: [`Role`], [`Caller`] and [`allow`], which every service method asks
//! before anything else; the file of rights ([`access`]); tokens ([`token`]) and
//! JWTs; which method needs what ([`methods`]); and the layer around all
//! services ([`Guard`]). Not in here: certificates (`headwater_tls`), and how
//! much a caller may ask for ([`crate::limit`]).
//!
//! # Invariants
//!
//! - Once there is a file of rights, a call without a known identity ends as
//!   `UNAUTHENTICATED`, and one without the right as `PERMISSION_DENIED`. Only
//!   `grpc.health.v1` is open.
//! - A method that has no row in [`methods`] is refused: whoever adds one has to
//!   say what it needs.
//! - A refusal rests on the caller and the name that was asked for, and on
//!   nothing stored: whether a history exists outside the caller's prefixes, it
//!   does not tell.

pub mod access;
pub mod authenticator;
mod body;
mod claims;
mod jwt;
mod layer;
pub mod methods;
pub mod moment;
pub mod token;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use tonic::{Request, Status};

pub use self::authenticator::{Authenticator, AuthenticatorError};
pub use self::layer::{Guard, GuardLayer};
use crate::status;

/// What a caller may do. Each includes those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read, watch, describe and list histories.
    Read,
    /// Submit operations and ask what became of them; take over an exclusive
    /// history.
    Write,
    /// Pins, retention, restores; fork from it; what the process has asked of
    /// its store.
    Maintain,
    /// Create and delete histories, fork into them.
    Admin,
}

impl Role {
    /// All, the least first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Maintain, Self::Admin];

    /// The word of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Maintain => "maintain",
            Self::Admin => "admin",
        }
    }

    /// The role of that word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A role on the histories whose names begin in certain ways.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// What may be done.
    pub role: Role,
    /// How the names begin. An empty text is how every name begins.
    pub histories: Vec<String>,
}

impl Grant {
    fn gives(&self, role: Role, history: &str) -> bool {
        role <= self.role && self.histories.iter().any(|it| history.starts_with(it.as_str()))
    }
}

/// What was proved about a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// For logs and limits: `token ingest`, `certificate fleet`, `jwt corp ada`.
    pub name: Arc<str>,
    /// What it may do.
    pub grants: Arc<[Grant]>,
    /// Calls a second, where they are limited for it alone.
    pub requests_per_second: Option<u32>,
    /// When the proof ends, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
}

/// Who made a call. In the extensions of every request that the layer let
/// through.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `None`: nobody has to prove anything here, so everything is allowed.
    pub principal: Option<Principal>,
    /// The name for logs and limits.
    pub name: Arc<str>,
    /// Where from.
    pub peer: Option<SocketAddr>,
}

impl Caller {
    /// Who made this call; `None` where no layer is around the service, as in
    /// a process that calls itself.
    pub fn of<T>(request: &Request<T>) -> Option<Arc<Self>> {
        request.extensions().get().cloned()
    }

    /// Whether it may do this to the history.
    ///
    /// # Errors
    ///
    /// `PERMISSION_DENIED`, in the same words for every history.
    pub fn allow(&self, role: Role, history: &str) -> Result<(), Status> {
        let Some(principal) = &self.principal else { return Ok(()) };
        if principal.grants.iter().any(|it| it.gives(role, history)) {
            return Ok(());
        }
        Err(status::permission_denied(&format!(
            "this call needs the role {role} for the history that it names, which {} has not",
            self.name
        )))
    }

    /// Whether it has the role for any history at all.
    fn has_anywhere(&self, role: Role) -> bool {
        match &self.principal {
            None => true,
            Some(it) => it.grants.iter().any(|it| role <= it.role && !it.histories.is_empty()),
        }
    }
}

/// Whether the caller of `request` may do this to the history. Asked before
/// anything else. Everything is allowed where nobody has to prove anything.
///
/// # Errors
///
/// `PERMISSION_DENIED`.
pub fn allow<T>(request: &Request<T>, role: Role, history: &str) -> Result<(), Status> {
    allow_caller(Caller::of(request).as_deref(), role, history)
}

/// As [`allow`], for the messages of a stream.
///
/// # Errors
///
/// `PERMISSION_DENIED`.
pub fn allow_caller(caller: Option<&Caller>, role: Role, history: &str) -> Result<(), Status> {
    caller.map_or(Ok(()), |it| it.allow(role, history))
}

/// Whether the caller may do this to the process, which serves all histories.
///
/// # Errors
///
/// `PERMISSION_DENIED` for a role that is not for every history.
pub fn allow_process<T>(request: &Request<T>, role: Role) -> Result<(), Status> {
    allow(request, role, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(grants: &[(Role, &[&str])]) -> Caller {
        let grants = grants.iter().map(|(role, histories)| Grant {
            role: *role,
            histories: histories.iter().map(ToString::to_string).collect(),
        });
        let principal = Principal {
            name: "token t".into(),
            grants: grants.collect(),
            requests_per_second: None,
            expires_at_ms: None,
        };
        Caller { name: "token t".into(), principal: Some(principal), peer: None }
    }

    #[test]
    fn a_role_includes_those_before_it_on_its_prefixes_alone() {
        let caller = caller(&[(Role::Write, &["app-", "x/"]), (Role::Read, &["logs"])]);
        for (role, history, is_allowed) in [
            (Role::Read, "app-1", true),
            (Role::Write, "app-", true),
            (Role::Write, "x/y", true),
            (Role::Maintain, "app-1", false),
            (Role::Read, "logs2", true),
            (Role::Write, "logs", false),
            (Role::Read, "ap", false),
            (Role::Read, "x", false),
            (Role::Read, "", false),
        ] {
            assert_eq!(caller.allow(role, history).is_ok(), is_allowed, "{role} {history}");
        }
        assert!(caller.has_anywhere(Role::Write));
        assert!(!caller.has_anywhere(Role::Maintain));
    }

    #[test]
    fn the_empty_prefix_is_every_history_and_the_process() {
        let request = |caller| {
            let mut request = Request::new(());
            request.extensions_mut().insert(Arc::new(caller));
            request
        };
        assert!(
            allow_process(&request(caller(&[(Role::Maintain, &[""])])), Role::Maintain).is_ok()
        );
        let narrow = request(caller(&[(Role::Admin, &["a"])]));
        assert!(allow_process(&narrow, Role::Maintain).is_err());
        assert!(allow(&narrow, Role::Admin, "ab").is_ok());
        // No prefix at all is no history at all.
        let none = caller(&[(Role::Admin, &[])]);
        assert!(none.allow(Role::Read, "a").is_err() && !none.has_anywhere(Role::Read));
    }

    #[test]
    fn a_refusal_says_the_same_of_every_history() {
        let caller = caller(&[(Role::Read, &["a"])]);
        let said = |history| caller.allow(Role::Read, history).unwrap_err().message().to_owned();
        assert_eq!(said("exists"), said("does-not"));
    }
}
