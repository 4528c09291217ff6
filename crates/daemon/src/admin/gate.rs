//! Who may ask the admin port for what.
//!
//! | | probes | `/metrics`, what is logged | status page, `/status.json` | changes |
//! | --- | --- | --- | --- | --- |
//! | a file of rights | anybody | who is known | `read` of every history | `admin` of every history |
//! | required client certificates | anybody | who shows one | who shows one | who shows one |
//! | neither | anybody | anybody | anybody | anybody |
//!
//! # Invariants
//!
//! - Probes ask nobody for anything: a kubelet has nothing to show, and a
//!   process that cannot be asked whether it lives would be started again.
//! - A port that is open on purpose is open for looking. A change needs its
//!   right all the same, wherever there are rights.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{Method, Request, StatusCode};
use tonic::transport::server::TcpConnectInfo;

use crate::audit;
use crate::auth::access::Shown;
use crate::auth::{Authenticator, Caller, Role};
use crate::tls::Peer;

/// How callers of the admin port prove who they are.
#[derive(Debug)]
pub(crate) enum Proof {
    /// Nobody has to.
    Nothing,
    /// By a certificate of an authority that was named, whoever it is for.
    Certificate,
    /// By what the file of rights knows.
    Rights(Authenticator),
}

/// Decides about the requests of an admin port. Clones share it.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Rules>);

#[derive(Debug)]
struct Rules {
    proof: Proof,
    /// Whether looking needs nothing.
    is_open: bool,
    refused_lines: audit::Sparing,
}

/// What a request needs of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Identity,
    /// For every history: it is about the process.
    Role(Role),
}

/// Why a request is not answered.
#[derive(Debug, PartialEq, Eq)]
struct Refused {
    status: StatusCode,
    why: String,
    /// The caller, as far as it is known.
    caller: Arc<str>,
}

impl Need {
    fn of(method: &Method, path: &str) -> Self {
        let is_looking = *method == Method::GET || *method == Method::HEAD;
        match path {
            "/livez" | "/readyz" => Self::Nothing,
            _ if !is_looking => Self::Role(Role::Admin),
            // They name no history, unless an operator asked for it.
            "/metrics" | "/loglevel" => Self::Identity,
            // What it looks like is no secret.
            _ if path.starts_with("/assets/") => Self::Identity,
            _ => Self::Role(Role::Read),
        }
    }

    fn is_a_change(self) -> bool {
        self == Self::Role(Role::Admin)
    }
}

impl Gate {
    /// Asks nobody for anything.
    pub fn open() -> Self {
        Self::new(Proof::Nothing, true)
    }

    /// `is_open`: looking needs no proof.
    pub(crate) fn new(proof: Proof, is_open: bool) -> Self {
        Self(Arc::new(Rules { proof, is_open, refused_lines: audit::Sparing::default() }))
    }

    /// Lets a request through, with its [`Caller`] among its extensions; or
    /// answers it.
    pub(super) fn check(&self, request: &mut Request<Body>) -> Result<(), Box<Response>> {
        let need = Need::of(request.method(), request.uri().path());
        // Taken out: nothing behind this needs it, and what has it may log it.
        let authorization = request.headers_mut().remove(AUTHORIZATION);
        let certificate = request.extensions().get::<Peer>().and_then(|it| it.client_names.clone());
        let peer =
            request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        let shown = Shown { authorization, certificate };
        match self.0.admit(need, &shown, peer) {
            Ok(caller) => {
                request.extensions_mut().insert(Arc::new(caller));
                Ok(())
            }
            Err(refused) => {
                if need.is_a_change() && self.0.refused_lines.is_due() {
                    let what = format!("{} {}", request.method(), request.uri().path());
                    let outcome = if refused.status == StatusCode::FORBIDDEN {
                        "PERMISSION_DENIED"
                    } else {
                        "UNAUTHENTICATED"
                    };
                    audit::process("AdminPort", &what, &refused.caller, peer, outcome);
                }
                Err(Box::new(refused.answer()))
            }
        }
    }
}

impl Rules {
    fn admit(
        &self,
        need: Need,
        shown: &Shown,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, Refused> {
        let anonymous = |name: &str| Caller { principal: None, name: name.into(), peer };
        if need == Need::Nothing || (self.is_open && !need.is_a_change()) {
            return Ok(anonymous("-"));
        }
        match &self.proof {
            Proof::Nothing => Ok(anonymous("-")),
            Proof::Certificate => {
                let name = shown.certificate.as_deref().and_then(<[String]>::first);
                let name = name.map(|it| format!("certificate {}", it.escape_debug()));
                name.map(|it| anonymous(&it)).ok_or_else(|| Refused {
                    status: StatusCode::UNAUTHORIZED,
                    why: "show a certificate of the authority that this server trusts".to_owned(),
                    caller: "-".into(),
                })
            }
            Proof::Rights(authenticator) => {
                let principal = authenticator.authenticate(shown).map_err(|unknown| Refused {
                    status: StatusCode::UNAUTHORIZED,
                    why: unknown.to_string(),
                    caller: "-".into(),
                })?;
                let name = Arc::clone(&principal.name);
                let caller = Caller { principal: Some(principal), name, peer };
                match need {
                    Need::Role(role) if caller.allow(role, "").is_err() => Err(Refused {
                        status: StatusCode::FORBIDDEN,
                        why: format!(
                            "this needs the role {role} for every history, which {} has not",
                            caller.name
                        ),
                        caller: caller.name,
                    }),
                    Need::Role(_) | Need::Identity | Need::Nothing => Ok(caller),
                }
            }
        }
    }
}

impl Refused {
    fn answer(self) -> Response {
        let text = format!("{}\n", self.why);
        if self.status == StatusCode::UNAUTHORIZED {
            return (self.status, [(WWW_AUTHENTICATE, "Bearer")], text).into_response();
        }
        (self.status, text).into_response()
    }
}

#[cfg(test)]
#[path = "gate_test.rs"]
mod tests;
