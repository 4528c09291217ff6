//! What this side shows of itself: certificates in the handshake, a bearer
//! token with every request.
//!
//! # Invariant
//!
//! - A token leaves this process over TLS, to this machine, or where the caller
//!   has said that the network encrypts by itself; never otherwise.

use std::net::SocketAddr;
use std::time::Duration;

use headwater_proto::reason;
use headwater_tls::{BearerFile, Connector};
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::address::Address;
use crate::failure::{Failure, Reason};

/// A way to one server, which shows the token with each request.
pub(crate) type Line = InterceptedService<Channel, Token>;

/// What a client was given to show.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    /// For addresses that say `https`.
    pub(crate) connector: Connector,
    pub(crate) bearer: Option<BearerFile>,
    /// Show the token also where others can read it.
    pub(crate) is_plain_allowed: bool,
}

impl Credentials {
    /// TLS with this server, if its address asks for it.
    pub(crate) fn tls(&self, address: &Address) -> Option<(Connector, String)> {
        address.is_tls.then(|| (self.connector.clone(), address.host.clone()))
    }

    /// What is shown to the server behind this socket.
    pub(crate) fn token(&self, address: &Address, socket: SocketAddr) -> Token {
        let is_here = socket.ip().to_canonical().is_loopback();
        let is_safe = address.is_tls || is_here || self.is_plain_allowed;
        Token { bearer: self.bearer.clone(), is_safe }
    }
}

/// Shows the token to one server.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    bearer: Option<BearerFile>,
    is_safe: bool,
}

impl Token {
    /// What is shown now, to be compared once it was refused.
    pub(crate) fn shown(&self) -> Option<http::HeaderValue> {
        self.bearer.as_ref()?.authorization().ok()
    }

    /// A refused token is worth another try where the file holds another one by
    /// now: it was replaced while the call was under way.
    pub(crate) fn look_again(&self, shown: Option<&http::HeaderValue>, failure: &mut Failure) {
        if failure.reason == Reason::Unauthenticated
            && let (Some(bearer), Some(shown)) = (&self.bearer, shown)
            && bearer.has_another_than(shown)
        {
            failure.retry_after = Some(Duration::ZERO);
        }
    }
}

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let Some(bearer) = &self.bearer else { return Ok(request) };
        if !self.is_safe {
            return Err(not_shown(
                "the token would be sent in the clear to another machine: use https, or allow it",
            ));
        }
        let header = bearer.authorization().map_err(|error| not_shown(&error.to_string()))?;
        // What was a header is metadata, which is one.
        if let Ok(mut value) = MetadataValue::try_from(header.as_bytes()) {
            value.set_sensitive(true);
            request.metadata_mut().insert("authorization", value);
        }
        Ok(request)
    }
}

/// Nothing was sent, for want of something to show.
fn not_shown(why: &str) -> Status {
    let determinacy = (reason::DETERMINACY.to_owned(), reason::NOT_APPLIED.to_owned());
    let info =
        ErrorDetails::with_error_info(reason::UNAUTHENTICATED, reason::DOMAIN, [determinacy]);
    Status::with_error_details(Code::Unauthenticated, why, info)
}

#[cfg(test)]
mod tests {
    use headwater_tls::ClientFiles;

    use super::*;

    fn sent(address: &str, socket: &str, is_plain_allowed: bool) -> Result<bool, Status> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret").unwrap();
        let credentials = Credentials {
            connector: Connector::new(ClientFiles::default()),
            bearer: Some(BearerFile::new(file.path())),
            is_plain_allowed,
        };
        let address = Address::parse(address, false).unwrap();
        let mut token = credentials.token(&address, socket.parse().unwrap());
        let request = token.call(Request::new(()))?;
        let shown = request.metadata().get("authorization").unwrap();
        assert!(!format!("{shown:?} {token:?}").contains("s3cret"));
        Ok(shown.to_str().unwrap() == "Bearer s3cret")
    }

    #[tokio::test]
    async fn a_token_is_not_sent_where_others_read_it() {
        assert!(sent("https://h:1", "10.0.0.1:1", false).unwrap());
        assert!(sent("h:1", "127.0.0.1:1", false).unwrap());
        assert!(sent("h:1", "[::1]:1", false).unwrap());
        assert!(sent("h:1", "10.0.0.1:1", true).unwrap());

        // A name that sounds local is not what decides.
        for name in ["h:1", "http://localhost:1"] {
            let refused = Failure::from_status(&sent(name, "10.0.0.1:1", false).unwrap_err());
            assert_eq!(refused.reason, Reason::Unauthenticated);
            assert_eq!(refused.determinacy, crate::Determinacy::NotApplied);
            assert!(!refused.is_worth_repeating());
        }
    }
}
