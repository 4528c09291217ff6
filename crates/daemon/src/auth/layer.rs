//! The layer around all services of a port: who calls, whether it may ask for
//! this at all, and whether there is room for it.
//!
//! Which history a call is about is inside its message; so the services ask
//! [`allow`](super::allow) themselves. The layer refuses what has no right to
//! the method on any history, before a byte of the message is looked at.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::header::AUTHORIZATION;
use http::{Request, Response};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::server::TcpConnectInfo;
use tower::Layer;

use super::access::Shown;
use super::body::{Answering, Arriving, Going, Held};
use super::methods::{self, Method, Need, Shape};
use super::{Authenticator, Caller, Role};
use crate::audit;
use crate::limit::{Charge, LimitOptions, Limits, OnTheWay, Permit};
use crate::status;
use crate::tls::Peer;

/// Health checks of one address under way at a time, and as many watches of
/// health. They count apart, so that a server that sheds load is not taken for a
/// dead one, and apart from each other: watches last, and would keep out the
/// checks of whoever has the same address.
const HEALTH_CALLS_MAX: u64 = 256;

/// Makes [`Guard`]s.
#[derive(Clone, Debug)]
pub struct GuardLayer(Arc<Rules>);

/// A service behind the layer.
#[derive(Clone, Debug)]
pub struct Guard<S> {
    inner: S,
    rules: Arc<Rules>,
}

#[derive(Debug)]
struct Rules {
    /// `None`: nobody has to prove anything.
    authenticator: Option<Authenticator>,
    limits: Arc<Limits>,
    arrival_max: Duration,
    refused_lines: audit::Sparing,
}

/// What was made of a request that was let in.
struct Admitted {
    held: Held,
    arriving: Arrival,
    going: Going,
    changed: Option<BoxFuture<'static, ()>>,
}

/// How the request of a call comes in.
enum Arrival {
    /// One message of somebody unknown.
    Open,
    /// One message, which counts.
    One(Arc<Charge>),
    /// Messages for as long as the call lasts.
    Many { permit: Arc<Permit>, is_kept: bool },
}

impl GuardLayer {
    /// Without an authenticator everybody may do everything, within the limits.
    pub fn new(authenticator: Option<Authenticator>, options: LimitOptions) -> Self {
        let arrival_max = Duration::from_millis(options.request_arrival_ms_max);
        let limits = Limits::new(options);
        let refused_lines = audit::Sparing::default();
        Self(Arc::new(Rules { authenticator, limits, arrival_max, refused_lines }))
    }

    /// What counts towards the limits.
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.0.limits)
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, rules: Arc::clone(&self.0) }
    }
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Admitted { held, arriving, going, changed } = match self.rules.admit(&mut request) {
            Ok(admitted) => admitted,
            Err(refused) => return Box::pin(async move { Ok(refused.into_http()) }),
        };
        let arrival_max = self.rules.arrival_max;
        let request = request.map(|body| {
            Body::new(match arriving {
                Arrival::Open => Arriving::open(body, arrival_max),
                Arrival::One(charge) => Arriving::one(body, charge, arrival_max),
                Arrival::Many { permit, is_kept } => {
                    Arriving::many(body, permit, is_kept, arrival_max)
                }
            })
        });
        let answering = self.inner.call(request);
        Box::pin(async move {
            let answer = answering.await?;
            Ok(answer.map(|body| Body::new(Answering::new(body, held, going, changed))))
        })
    }
}

impl Rules {
    fn admit(&self, request: &mut Request<Body>) -> Result<Admitted, Status> {
        // Taken out: nothing behind this needs it, and what has it may log it.
        let authorization = request.headers_mut().remove(AUTHORIZATION);
        let certificate = request.extensions().get::<Peer>().and_then(|it| it.client_names.clone());
        let peer =
            request.extensions().get::<TcpConnectInfo>().and_then(TcpConnectInfo::remote_addr);
        let shown = Shown { authorization, certificate };
        let method = methods::find(request.uri().path());
        let caller = match self.identify(method, &shown, peer) {
            Ok(caller) => caller,
            Err(refused) => {
                self.tell_refused(method, "-", peer, &refused);
                return Err(refused);
            }
        };
        let own_rate = caller.principal.as_ref().and_then(|it| it.requests_per_second);
        let permit = match method.map(|it| it.need) {
            Some(Need::Open) => {
                let is_stream = method.is_some_and(|it| it.shape != Shape::Unary);
                self.limits.admit_open(&caller.name, HEALTH_CALLS_MAX, is_stream)?
            }
            Some(Need::Identity | Need::Role(_)) | None => {
                self.limits.admit(&caller.name, own_rate)?
            }
        };
        let on_the_way = request.extensions().get::<OnTheWay>().cloned().unwrap_or_default();
        let (answers, permit) = (permit.answers(on_the_way), Arc::new(permit));
        let shape = method.map_or(Shape::Stream, |it| it.shape);
        let is_unary = shape == Shape::Unary;
        let is_open = method.is_some_and(|it| it.need == Need::Open);
        // A unary call holds its message until it is answered; what a stream of
        // answers needs of its own is kept by the service, under its limits.
        let (arriving, charge) = match shape {
            Shape::Unary | Shape::Answers if is_open => (Arrival::Open, None),
            Shape::Unary => {
                let charge = Arc::new(permit.charge());
                (Arrival::One(Arc::clone(&charge)), Some(charge))
            }
            Shape::Answers => (Arrival::One(Arc::new(permit.charge())), None),
            Shape::Stream | Shape::Subscription => {
                let is_kept = shape == Shape::Subscription;
                (Arrival::Many { permit: Arc::clone(&permit), is_kept }, None)
            }
        };
        let going = match method.map(|it| it.need) {
            _ if !is_unary => Going::Waits,
            // What it tells is to be told again as it was.
            Some(Need::Role(Role::Read)) => Going::Refused,
            Some(_) | None => Going::Anyway,
        };
        if going == Going::Refused && !answers.has_room() {
            // Before anything is done for it.
            drop(answers.take(0)?);
        }
        let changed = match (&self.authenticator, &caller.principal) {
            (Some(authenticator), Some(principal)) if !is_unary => {
                let watched = authenticator.clone().changed(shown, principal.clone());
                Some(Box::pin(watched) as BoxFuture<'static, ()>)
            }
            (Some(_) | None, Some(_) | None) => None,
        };
        if is_unary && permit.has_rate() {
            request.extensions_mut().insert(Arc::clone(&permit));
        }
        request.extensions_mut().insert(Arc::new(caller));
        Ok(Admitted { held: Held { charge, answers, permit }, arriving, going, changed })
    }

    fn identify(
        &self,
        method: Option<Method>,
        shown: &Shown,
        peer: Option<SocketAddr>,
    ) -> Result<Caller, Status> {
        let need = method.map(|it| it.need);
        let address = || peer.map_or("unknown".to_owned(), |it| host(it.ip()));
        let anonymous = |name: String| Caller { principal: None, name: name.into(), peer };
        if need == Some(Need::Open) {
            let is_unary = method.is_some_and(|it| it.shape == Shape::Unary);
            let what = if is_unary { "health" } else { "watch of health" };
            return Ok(anonymous(format!("{what} {}", address())));
        }
        let Some(authenticator) = &self.authenticator else {
            let names = shown.certificate.as_deref().unwrap_or_default();
            let certificate = names.first().map(|it| format!("certificate {}", it.escape_debug()));
            return Ok(anonymous(certificate.unwrap_or_else(|| format!("address {}", address()))));
        };
        let known = authenticator.authenticate(shown);
        let principal = known.map_err(|it| status::unauthenticated(&it.to_string()))?;
        let name = Arc::clone(&principal.name);
        let caller = Caller { principal: Some(principal), name, peer };
        match need {
            Some(Need::Role(role)) if caller.has_anywhere(role) => Ok(caller),
            Some(Need::Role(role)) => {
                let refused = status::permission_denied(&format!(
                    "this call needs the role {role}, which {} has for no history",
                    caller.name
                ));
                self.tell_refused(method, &caller.name, peer, &refused);
                Err(refused)
            }
            Some(Need::Identity | Need::Open) => Ok(caller),
            None => Err(status::permission_denied("nobody has a right to this method")),
        }
    }

    /// Administrative calls are recorded also when they reach no service.
    fn tell_refused(
        &self,
        method: Option<Method>,
        caller: &str,
        peer: Option<SocketAddr>,
        refused: &Status,
    ) {
        let is_administrative =
            method.is_some_and(|it| matches!(it.need, Need::Role(Role::Maintain | Role::Admin)));
        let Some(method) = method.filter(|_| is_administrative) else { return };
        if self.refused_lines.is_due() {
            audit::refused(method.path, caller, peer, refused);
        }
    }
}

/// An address as a caller. Of IPv6 the network counts: whoever has one address
/// of it has 2^64.
fn host(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
    }
}

#[cfg(test)]
#[path = "layer_test.rs"]
mod tests;
