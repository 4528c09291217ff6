//! The calls of one connection: what they are told of it, how long they may
//! take, and how many are in flight.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Extensions, Request, Response};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tower::ServiceExt as _;

use super::GrpcService;
use super::connections::Connection;
use crate::auth::methods::{self, Need};
use crate::deadline;

const LATE: &str = "the deadline passed while the call was being served";

/// Serves the calls of one connection.
#[derive(Clone)]
pub(super) struct Calls {
    pub(super) service: GrpcService,
    pub(super) connection: Arc<Connection>,
    /// Every request gets a copy.
    pub(super) extensions: Extensions,
}

impl hyper::service::Service<Request<Incoming>> for Calls {
    type Response = Response<InFlight>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let call = Call::begin(Arc::clone(&self.connection), request.uri().path());
        let mut request = request.map(Body::new);
        request.extensions_mut().extend(self.extensions.clone());
        let deadline = deadline::named(request.headers());
        let answering = self.service.clone().oneshot(request);
        Box::pin(async move {
            let response = match deadline {
                None => answering.await?,
                // The services answer before it, and say what they know. This
                // is for those that do not look at their deadline, and says
                // nothing of what was applied.
                Some(time) => match tokio::time::timeout(time, answering).await {
                    Ok(response) => response?,
                    Err(_) => Status::deadline_exceeded(LATE).into_http(),
                },
            };
            Ok(response.map(|body| InFlight { body, _call: call }))
        })
    }
}

/// One call, counted for as long as it is there.
struct Call(Arc<Connection>);

impl Call {
    /// `None` for what anybody may ask for: such calls keep no place, however
    /// many, or those without any right could hold all of them.
    fn begin(connection: Arc<Connection>, path: &str) -> Option<Self> {
        if methods::find(path).is_some_and(|it| it.need == Need::Open) {
            return None;
        }
        connection.begin_call();
        Some(Self(connection))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.end_call();
    }
}

/// The body of an answer. Its call is in flight until it is sent or dropped.
pub(super) struct InFlight {
    body: Body,
    _call: Option<Call>,
}

impl HttpBody for InFlight {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
