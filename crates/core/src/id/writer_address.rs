//! Where a writer can be reached by other writers.

use alloc::string::String;
use core::fmt;

/// Where the writer that made a head takes operations from other writers:
/// `http` or `https`, a host, and a port if it is not the scheme's own.
///
/// It is a hint. Nothing follows from it but whom somebody may ask.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriterAddress(String);

/// Why a string is not a [`WriterAddress`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a writer's address is http:// or https://, a host, and a port: 256 bytes at most, nothing \
     after the port"
)]
pub struct WriterAddressError;

impl WriterAddress {
    /// Longest accepted address, in bytes: the longest DNS name is 253, and
    /// names of machines are far shorter. Every head repeats it.
    pub const LEN_BYTES_MAX: usize = 256;

    /// Checks `text` and takes it as an address.
    ///
    /// # Errors
    ///
    /// [`WriterAddressError`].
    pub fn parse(text: &str) -> Result<Self, WriterAddressError> {
        let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        let authority = rest.filter(|_| text.len() <= Self::LEN_BYTES_MAX);
        let (host, port) = split(authority.ok_or(WriterAddressError)?).ok_or(WriterAddressError)?;
        let is_port = port.is_none_or(|it| {
            it.bytes().all(|it| it.is_ascii_digit()) && it.parse::<u16>().is_ok_and(|it| 0 < it)
        });
        if is_host(host) && is_port { Ok(Self(text.into())) } else { Err(WriterAddressError) }
    }

    /// The address as it stands in heads.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host alone, without the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        let authority = self.0.split_once("://").map_or("", |(_, it)| it);
        split(authority).map_or("", |(host, _)| host).trim_matches(['[', ']'])
    }
}

impl fmt::Display for WriterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Host and port. The colons of an IPv6 address are in brackets.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    let end = if authority.starts_with('[') { authority.find(']')? + 1 } else { 0 };
    match authority[end..].find(':') {
        Some(at) => Some((&authority[..end + at], Some(&authority[end + at + 1..]))),
        None => Some((authority, None)),
    }
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or_default();
        return !inner.is_empty() && inner.bytes().all(|it| it.is_ascii_hexdigit() || it == b':');
    }
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'-' | b'_');
    !host.is_empty() && host.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_a_host_and_a_port() {
        for (text, host) in [
            ("http://writer-0.headwater:7411", "writer-0.headwater"),
            ("https://writer_0.example", "writer_0.example"),
            ("http://10.0.0.7:1", "10.0.0.7"),
            ("https://[fd00::7]:7410", "fd00::7"),
            ("https://[::1]", "::1"),
        ] {
            let address = WriterAddress::parse(text).unwrap();
            assert_eq!((address.as_str(), address.host()), (text, host));
        }
        let longest = alloc::format!("https://{}", "h".repeat(248));
        assert!(WriterAddress::parse(&longest).is_ok());
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
        let long = alloc::format!("https://{}", "h".repeat(249));
        for text in [
            "",
            "writer:7410",
            "ftp://writer",
            "http://",
            "http://:7410",
            "http://writer:",
            "http://writer:0",
            "http://writer:65536",
            "http://writer:+1",
            "http://writer/",
            "http://writer:1/path",
            "http://user@writer",
            "http://writer?x",
            "http://two words",
            "http://[::1",
            "http://[]",
            "http://[::1]x:1",
            "http://::1",
            "HTTP://writer",
            &long,
        ] {
            assert_eq!(WriterAddress::parse(text), Err(WriterAddressError), "{text}");
        }
    }
}
