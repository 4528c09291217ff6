//! Where servers are, as the caller writes it.

use tonic::transport::Uri;
use url::{Host, Url};

/// One server or one DNS name of several: `http://HOST:PORT` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// What the resolver is asked for.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What requests name as their authority.
    pub(crate) uri: Uri,
}

/// Why text is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It cannot be read.
    #[error("not an address of a server (HOST:PORT or http://HOST:PORT): {text:?}")]
    Unreadable {
        /// What was given.
        text: String,
    },
    /// It names no port, and there is no usual one.
    #[error("the address of a server needs a port: {text:?}")]
    NoPort {
        /// What was given.
        text: String,
    },
    /// A scheme other than `http`.
    #[error("this build reaches servers by http only: {text:?}")]
    Scheme {
        /// What was given.
        text: String,
    },
    /// The client was given no address at all.
    #[error("no address of a {role} was given")]
    None {
        /// `writer` or `replica`.
        role: &'static str,
    },
}

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self, AddressError> {
        let unreadable = || AddressError::Unreadable { text: text.to_owned() };
        let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&full).map_err(|_| unreadable())?;
        if url.scheme() != "http" {
            return Err(AddressError::Scheme { text: text.to_owned() });
        }
        let has_more = !matches!(url.path(), "" | "/")
            || url.query().is_some()
            || url.fragment().is_some()
            || !url.username().is_empty()
            || url.password().is_some();
        if has_more {
            return Err(unreadable());
        }
        // `Url` drops a port that is the scheme's usual one, which nobody serves
        // gRPC on by default: one that is not written is one that was forgotten.
        let port = match url.port() {
            Some(port) => port,
            None if full.trim_end_matches('/').ends_with(":80") => 80,
            None => return Err(AddressError::NoPort { text: text.to_owned() }),
        };
        let host = match url.host().ok_or_else(unreadable)? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(ip) => ip.to_string(),
            Host::Ipv6(ip) => ip.to_string(),
        };
        let uri = url.as_str().parse().map_err(|_| unreadable())?;
        Ok(Self { host, port, uri })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_names_and_literals_are_read() {
        for (text, host, port) in [
            ("localhost:7070", "localhost", 7070),
            ("http://replicas.example:80", "replicas.example", 80),
            ("http://10.0.0.1:7071/", "10.0.0.1", 7071),
            ("[::1]:7070", "::1", 7070),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_named() {
        let error = |text| Address::parse(text).unwrap_err();

        assert!(matches!(error("localhost"), AddressError::NoPort { .. }));
        assert!(matches!(error("https://a:443"), AddressError::Scheme { .. }));
        for text in ["", "http://", "a:b", "a:70707", "http://a:1/path", "http://u@a:1"] {
            assert!(matches!(error(text), AddressError::Unreadable { .. }), "{text:?}");
        }
    }
}
