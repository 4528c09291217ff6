//! A bare unary echo over loopback: what gRPC gives on this machine.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use headwater_benches::Plan;
use headwater_benches::load::{self, Measured};
use headwater_benches::system::BoxError;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

const PATH: &str = "/headwater.bench.Echo/Echo";

/// As large as a put.
#[derive(Clone, PartialEq, prost::Message)]
struct Echoed {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: bytes::Bytes,
}

/// Answers with what it gets.
#[derive(Clone, Copy)]
struct Echo;

impl NamedService for Echo {
    const NAME: &'static str = "headwater.bench.Echo";
}

impl UnaryService<Echoed> for Echo {
    type Response = Echoed;
    type Future = Ready<Result<Response<Echoed>, Status>>;

    fn call(&mut self, request: Request<Echoed>) -> Self::Future {
        ready(Ok(Response::new(request.into_inner())))
    }
}

impl Service<HttpRequest<Body>> for Echo {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<Echoed, Echoed>::default();
            Ok(tonic::server::Grpc::new(codec).unary(Echo, request).await)
        })
    }
}

pub async fn measure(plan: Plan) -> Result<Measured, BoxError> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let serving =
        Server::builder().add_service(Echo).serve_with_incoming(TcpListenerStream::new(listener));
    let server = tokio::spawn(serving);
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    let value = bytes::Bytes::from(vec![b'v'; plan.value_bytes]);
    let call = move |caller: usize, n: u64| {
        let (channel, value) = (channel.clone(), value.clone());
        let key = format!("key/{caller:05}/{:03}", n % 100);
        async move { unary::<Echoed, Echoed>(channel, PATH, Echoed { key, value }).await.is_ok() }
    };
    let measured = load::run(plan.callers, plan.time, call, || ()).await;
    server.abort();
    Ok(measured)
}

/// One call of a service that has no generated client.
pub async fn unary<Q, A>(channel: Channel, path: &'static str, message: Q) -> Result<A, Status>
where
    Q: prost::Message + Send + Sync + 'static,
    A: prost::Message + Default + Send + Sync + 'static,
{
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = grpc.unary(Request::new(message), PathAndQuery::from_static(path), codec).await?;
    Ok(answer.into_inner())
}
