//! Which writers operations may go to.

use headwater_core::id::WriterAddress;

/// Hosts that an operator has named. A head names an address, and whoever can
/// write to the bucket writes heads: so the address alone is no permission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Longest list. Suffixes are there for more.
    pub(crate) const MAX: usize = 256;

    pub(crate) fn new(rules: &[String]) -> Self {
        Self(rules.iter().map(|it| it.to_ascii_lowercase()).collect())
    }

    /// Whether there is none at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a rule can be one: `*`, a host, or what names of hosts end with,
    /// with a dot in front.
    pub(crate) fn is_rule(rule: &str) -> bool {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || b".-_:".contains(&it);
        rule == "*" || (!rule.is_empty() && rule != "." && rule.bytes().all(is_plain))
    }

    pub(crate) fn allow(&self, address: &WriterAddress) -> bool {
        let host = address.host().to_ascii_lowercase();
        self.0.iter().any(|rule| match rule.strip_prefix('.') {
            Some(_) => host.len() > rule.len() && host.ends_with(rule.as_str()),
            None => rule == "*" || *rule == host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(rules: &[&str], address: &str) -> bool {
        let rules: Vec<_> = rules.iter().map(|it| (*it).to_owned()).collect();
        assert!(rules.iter().all(|it| Hosts::is_rule(it)));
        Hosts::new(&rules).allow(&WriterAddress::parse(address).unwrap())
    }

    #[test]
    fn a_host_is_allowed_by_name_by_the_end_of_its_name_or_with_all_others() {
        assert!(allow(&["writer-0"], "http://writer-0:7410"));
        assert!(allow(&["a", "WRITER-0"], "http://Writer-0:7410"));
        assert!(allow(&[".writers.svc"], "https://writer-0.writers.svc:7410"));
        assert!(allow(&["fd00::7"], "http://[fd00::7]:7410"));
        assert!(allow(&["*"], "http://10.0.0.7:7410"));
    }

    #[test]
    fn any_other_is_not() {
        assert!(!allow(&[], "http://writer-0:7410"));
        assert!(!allow(&["writer-0"], "http://writer-01:7410"));
        assert!(!allow(&["writer-0"], "http://x.writer-0:7410"));
        assert!(!allow(&[".writers.svc"], "https://evilwriters.svc"));
        assert!(!allow(&[".writers.svc"], "https://.writers.svc"));
        assert!(!allow(&[".writers.svc"], "https://x.writers.svc.evil.example"));
        for rule in ["", ".", "a b", "*.svc", "http://a"] {
            assert!(!Hosts::is_rule(rule), "{rule}");
        }
    }
}
