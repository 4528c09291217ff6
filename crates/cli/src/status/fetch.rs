//! One GET of `/status.json`.
//!
//! A connection of its own each time: the admin port may be another process's
//! the next time.

use std::fmt;
use std::time::Duration;

use headwater_daemon::overview::Window;
use headwater_daemon::page::Status;
use headwater_daemon::telemetry::with_causes;
use headwater_tls::{BearerFile, Connector};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout as within;
use url::{Url, form_urlencoded};

use crate::exit::Exit;
use crate::failed::Failed;
use crate::security::Security;

/// Longest answer, in bytes: ten times what the longest page of histories
/// takes.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// What is repeated of an answer that refuses, in characters.
const REFUSAL_CHARS_MAX: usize = 300;

/// An admin port.
#[derive(Clone, Debug)]
pub(super) struct Admin {
    /// `None`: it is asked in the clear.
    tls: Option<Connector>,
    host: String,
    port: u16,
    /// Before `status.json`: a proxy may have put it below another path.
    path: String,
    bearer: Option<BearerFile>,
    /// Show the token also where others can read it.
    is_plain_allowed: bool,
}

/// A connection to it.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// What was found there.
#[derive(Clone, Debug)]
pub(super) struct Looked {
    /// As it came: a newer process may say more than this build knows.
    pub(super) json: Value,
    pub(super) status: Status,
}

impl fmt::Display for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}:{}{}", self.host, self.port, self.path)
    }
}

impl Admin {
    pub(super) fn parse(text: &str, security: &Security) -> Result<Self, Failed> {
        let with_scheme =
            if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let refused = |why: &str| {
            Failed::usage(format!("`{text}` is not an admin address: {why}"))
                .advise("give HOST:PORT, as the process's --admin-listen has it")
        };
        let url = Url::parse(&with_scheme).map_err(|error| refused(&error.to_string()))?;
        // Not by whether certificates are named: those are for the other port
        // too, and this one may be plain beside it.
        let tls = match url.scheme() {
            "http" => None,
            "https" => Some(Connector::for_http(security.files())),
            _ => return Err(refused("http or https is spoken there")),
        };
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(refused("there is no host in it"));
        };
        let path = url.path().trim_end_matches("status.json");
        let slash = if path.ends_with('/') { "" } else { "/" };
        Ok(Self {
            tls,
            host: host.to_owned(),
            port,
            path: format!("{path}{slash}"),
            bearer: security.token_file.as_ref().map(BearerFile::new),
            is_plain_allowed: security.token_over_plain,
        })
    }

    /// Asks, and waits for the whole answer for so long at most.
    pub(super) async fn look(&self, window: &Window, timeout: Duration) -> Result<Looked, Failed> {
        let unavailable = |why: String| {
            Failed::new(Exit::Unavailable, format!("{self} does not answer: {why}"))
                .advise("is the process started with --admin-listen, and with this address?")
        };
        let (code, bytes) = match within(timeout, self.get(window)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(unavailable(error)),
            Err(_) => return Err(unavailable(format!("not within {} s", timeout.as_secs()))),
        };
        if code != StatusCode::OK {
            let said: String = String::from_utf8_lossy(&bytes)
                .chars()
                .filter(|it| !it.is_control())
                .take(REFUSAL_CHARS_MAX)
                .collect();
            let exit = match code {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Unexpected,
                _ if code.is_client_error() => Exit::Usage,
                _ => Exit::Unavailable,
            };
            return Err(Failed::new(exit, format!("{self} answers {code}: {said}")));
        }
        let other = |error: serde_json::Error| {
            Failed::new(Exit::Unexpected, format!("{self} does not say how it stands: {error}"))
                .advise("is it the admin port of a Headwater process of this version?")
        };
        let json: Value = serde_json::from_slice(&bytes).map_err(other)?;
        let status = serde_json::from_slice(&bytes).map_err(other)?;
        Ok(Looked { json, status })
    }

    async fn get(&self, window: &Window) -> Result<(StatusCode, Bytes), String> {
        let failed = |error: &dyn std::error::Error| with_causes(error);
        // Brackets are for URLs; a resolver wants the address of IPv6 without.
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let socket = TcpStream::connect((host, self.port)).await.map_err(|it| failed(&it))?;
        let peer = socket.peer_addr().map_err(|it| failed(&it))?;
        let io: Box<dyn Io> = match &self.tls {
            None => Box::new(socket),
            Some(tls) => Box::new(tls.connect(host, socket).await.map_err(|it| failed(&it))?),
        };
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(io)).await.map_err(|it| failed(&it))?;
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("prefix", &window.prefix)
            .append_pair("after", &window.after)
            .append_pair("limit", &window.limit.to_string())
            .finish();
        let mut request = Request::get(format!("{}status.json?{query}", self.path))
            .header(header::HOST, format!("{}:{}", self.host, self.port))
            .header(header::ACCEPT, "application/json");
        if let Some(bearer) = &self.bearer {
            let is_safe = self.tls.is_some()
                || self.is_plain_allowed
                || peer.ip().to_canonical().is_loopback();
            if !is_safe {
                return Err("the token would be sent in the clear to another machine: give an \
                            https URL, or say --token-over-plain"
                    .to_owned());
            }
            let token = bearer.authorization().map_err(|it| failed(&it))?;
            request = request.header(header::AUTHORIZATION, token);
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|it| failed(&it))?;
        let answering = async {
            let answer = sender.send_request(request).await.map_err(|it| failed(&it))?;
            let code = answer.status();
            Ok((code, body(answer.into_body()).await?))
        };
        // The connection does the work, and has nothing to say besides.
        tokio::pin!(connection, answering);
        loop {
            tokio::select! {
                biased;
                answer = &mut answering => return answer,
                ended = &mut connection => ended.map_err(|it| failed(&it))?,
            }
        }
    }
}

async fn body(body: Incoming) -> Result<Bytes, String> {
    match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
        Ok(bytes) => Ok(bytes.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes"))
        }
        Err(error) => Err(with_causes(&*error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_or_a_url() {
        let security = Security::default();
        let shown = |text| Admin::parse(text, &security).unwrap().to_string();
        assert_eq!(shown("127.0.0.1:7412"), "http://127.0.0.1:7412/");
        assert_eq!(shown("[::1]:7412"), "http://[::1]:7412/");
        assert_eq!(shown("admin.example"), "http://admin.example:80/");
        assert_eq!(shown("http://h:1/pods/a"), "http://h:1/pods/a/");
        assert_eq!(shown("http://h:1/status.json"), "http://h:1/");
        assert_eq!(shown("https://h"), "https://h:443/");
        assert_eq!(shown("http://me:secret@h:1"), "http://h:1/");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", "ftp://h:1", "h:99999", "http://", "a b"] {
            let refused = Admin::parse(text, &Security::default()).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage, "{text}");
        }
    }
}
