//! Where servers are, as the caller writes it.

use tonic::transport::Uri;
use url::{Host, Url};

/// One server or one DNS name of several: `https://HOST:PORT`,
/// `http://HOST:PORT` or `HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// What the resolver is asked for.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What requests name as their authority.
    pub(crate) uri: Uri,
    pub(crate) is_tls: bool,
}

/// Why text is not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It cannot be read.
    #[error("not an address of a server (HOST:PORT or https://HOST:PORT): {text:?}")]
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
    /// A scheme other than `http` and `https`.
    #[error("servers are reached by http or https: {text:?}")]
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
    /// `is_tls`: what a text without a scheme means.
    pub(crate) fn parse(text: &str, is_tls: bool) -> Result<Self, AddressError> {
        let unreadable = || AddressError::Unreadable { text: text.to_owned() };
        let scheme = if is_tls { "https" } else { "http" };
        let full =
            if text.contains("://") { text.to_owned() } else { format!("{scheme}://{text}") };
        let url = Url::parse(&full).map_err(|_| unreadable())?;
        if !matches!(url.scheme(), "http" | "https") {
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
            None if full.trim_end_matches('/').ends_with(":443") => 443,
            None => return Err(AddressError::NoPort { text: text.to_owned() }),
        };
        let host = match url.host().ok_or_else(unreadable)? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(ip) => ip.to_string(),
            Host::Ipv6(ip) => ip.to_string(),
        };
        let uri = url.as_str().parse().map_err(|_| unreadable())?;
        let is_tls = url.scheme() == "https";
        Ok(Self { host, port, uri, is_tls })
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
            ("https://writers.example:443", "writers.example", 443),
        ] {
            let address = Address::parse(text, false).unwrap();
            assert_eq!((address.host.as_str(), address.port), (host, port), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_named() {
        let error = |text| Address::parse(text, false).unwrap_err();

        assert!(matches!(error("localhost"), AddressError::NoPort { .. }));
        assert!(matches!(error("ftp://a:443"), AddressError::Scheme { .. }));
        for text in ["", "http://", "a:b", "a:70707", "http://a:1/path", "http://u@a:1"] {
            assert!(matches!(error(text), AddressError::Unreadable { .. }), "{text:?}");
        }
    }

    #[test]
    fn what_has_no_scheme_is_what_the_caller_says() {
        for (text, otherwise, is_tls) in [
            ("a:1", false, false),
            ("a:1", true, true),
            ("http://a:1", true, false),
            ("https://a:1", false, true),
        ] {
            assert_eq!(Address::parse(text, otherwise).unwrap().is_tls, is_tls, "{text}");
        }
    }
}
