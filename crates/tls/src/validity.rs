//! From when until when certificates are good.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// The time for which a certificate is good, in seconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// When it begins; 0 for one that is older than that.
    pub begins_at: u64,
    /// When it ends.
    pub ends_at: u64,
}

/// The time of what is shown: of the certificate in a chain that ends first.
/// `None` where it cannot be told of the first one. Of those that follow some may
/// be of a kind that is not judged, such as old roots.
pub(crate) fn of_chain(chain: &[CertificateDer<'_>]) -> Option<Validity> {
    let (first, rest) = chain.split_first()?;
    let first = of_certificate(first)?;
    let sooner = |a: Validity, b: Validity| if b.ends_at < a.ends_at { b } else { a };
    Some(rest.iter().filter_map(of_certificate).fold(first, sooner))
}

/// The library that judges certificates keeps the times to itself. Asked about one
/// at the end of all times, it says when that one ended, and at their beginning,
/// when it will begin: it looks at the time before it looks for an authority
/// (webpki 0.103, `verify_cert.rs`). If it did not, no time would be told, and the
/// test below would fail.
fn of_certificate(certificate: &CertificateDer<'_>) -> Option<Validity> {
    let read = EndEntityCert::try_from(certificate).ok()?;
    let judged = |seconds| {
        let at = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        read.verify_for_usage(&[], &[], &[], at, KeyUsage::server_auth(), None, None)
    };
    let Err(Error::CertExpired { not_after, .. }) = judged(u64::MAX) else { return None };
    let begins_at = match judged(0) {
        Err(Error::CertNotValidYet { not_before, .. }) => not_before.as_secs(),
        Err(_) | Ok(_) => 0,
    };
    Some(Validity { begins_at, ends_at: not_after.as_secs() })
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    fn until(year: i32, is_authority: bool) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["h.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(year - 1, 12, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_time_of_a_chain_is_that_of_the_certificate_that_ends_first() {
        // By `date -u -d 2031-01-01 +%s` and the like. From 2050 on a date is
        // written in another form.
        let december = 31 * 86_400;
        let [y2020, y2031, y2051] = [1_577_836_800, 1_924_992_000, 2_556_144_000]
            .map(|ends_at| Some(Validity { begins_at: ends_at - december, ends_at }));
        assert_eq!(of_chain(&[until(2031, false)]), y2031);
        assert_eq!(of_chain(&[until(2051, false)]), y2051);
        assert_eq!(of_chain(&[until(2020, false)]), y2020, "one that has ended");
        assert_eq!(of_chain(&[until(2051, false), until(2031, true)]), y2031);
        assert_eq!(of_chain(&[until(2031, false), until(2051, true)]), y2031);
    }

    #[test]
    fn of_what_cannot_be_read_no_end_is_told() {
        let odd = CertificateDer::from(vec![1, 2, 3]);
        assert_eq!(of_chain(&[]), None);
        assert_eq!(of_chain(&[odd.clone(), until(2031, false)]), None);
        let leaf = until(2031, false);
        assert_eq!(of_chain(&[leaf.clone(), odd]), of_chain(&[leaf]), "of the others what can be");
    }
}
