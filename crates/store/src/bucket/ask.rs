//! Questions about a bucket itself, which are no calls of a store.
//!
//! In here: what was said, and sending a question once. Not in here: where each
//! kind of store is asked and how that is signed, which its dialect knows, nor
//! what an answer means ([`crate::probe`]).

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use http::StatusCode;
use http::header::DATE;
use object_store::client::{HttpClient, HttpRequest};

/// Longest answer that is read.
const ANSWER_LEN_BYTES_MAX: usize = 1 << 20;

/// What the store said about the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Its status; an error of the store is an answer as well.
    pub status: StatusCode,
    /// Its time, as the `Date` header has it.
    pub date: Option<String>,
    /// The document.
    pub body: String,
}

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No credentials, or none that sign.
    #[error("the question could not be signed")]
    Credentials(#[source] object_store::Error),
    /// The bucket's address is no URL.
    #[error("the bucket has no address that could be asked")]
    Address(#[source] http::Error),
    /// There is no connection, or it broke.
    #[error("the store could not be asked")]
    Connection(#[source] object_store::client::HttpError),
    /// The answer is longer than a bucket's settings are.
    #[error("the answer is longer than {ANSWER_LEN_BYTES_MAX} bytes")]
    TooLong,
    /// The client was built without a connection.
    #[error("there is no client to ask with")]
    NoClient,
}

/// Sends a question once, and reads the answer.
pub(crate) async fn send(
    client: Option<&HttpClient>,
    request: HttpRequest,
) -> Result<Said, AskError> {
    let client = client.ok_or(AskError::NoClient)?;
    let answer = client.execute(request).await.map_err(AskError::Connection)?;
    let (parts, body) = answer.into_parts();
    let date = parts.headers.get(DATE).and_then(|it| it.to_str().ok()).map(str::to_owned);
    let mut document = BytesMut::new();
    let mut pieces = body.bytes_stream();
    while let Some(piece) = pieces.next().await {
        let piece: Bytes = piece.map_err(AskError::Connection)?;
        if ANSWER_LEN_BYTES_MAX < document.len() + piece.len() {
            return Err(AskError::TooLong);
        }
        document.extend_from_slice(&piece);
    }
    let body = String::from_utf8_lossy(&document).into_owned();
    Ok(Said { status: parts.status, date, body })
}
