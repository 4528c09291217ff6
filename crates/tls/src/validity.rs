//! Until when certificates are good.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, KeyUsage};

/// The end of what is shown: of the certificate in a chain that ends first, in
/// seconds since 1970 (UTC). `None` where it cannot be told of the first one. Of
/// those that follow some may be of a kind that is not judged, such as old roots.
pub(crate) fn not_after(chain: &[CertificateDer<'_>]) -> Option<u64> {
    let (first, rest) = chain.split_first()?;
    let first = not_after_of(first)?;
    Some(rest.iter().filter_map(not_after_of).fold(first, u64::min))
}

/// The library that judges certificates keeps the time to itself. Asked about one
/// at the end of all times, it says when that one ended: it looks at the time
/// before it looks for an authority (webpki 0.103, `verify_cert.rs`). If it did
/// not, no time would be told, and the test below would fail.
fn not_after_of(certificate: &CertificateDer<'_>) -> Option<u64> {
    let read = EndEntityCert::try_from(certificate).ok()?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let judged = read.verify_for_usage(&[], &[], &[], at, KeyUsage::server_auth(), None, None);
    let Err(Error::CertExpired { not_after, .. }) = judged else { return None };
    Some(not_after.as_secs())
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    fn until(year: i32, is_authority: bool) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["h.example".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
    }

    #[test]
    fn the_end_of_a_chain_is_that_of_the_certificate_that_ends_first() {
        // By `date -u -d 2031-01-01 +%s` and the like. From 2050 on a date is
        // written in another form.
        let (y2020, y2031, y2051) = (1_577_836_800, 1_924_992_000, 2_556_144_000);
        assert_eq!(not_after(&[until(2031, false)]), Some(y2031));
        assert_eq!(not_after(&[until(2051, false)]), Some(y2051));
        assert_eq!(not_after(&[until(2020, false)]), Some(y2020), "one that has ended");
        assert_eq!(not_after(&[until(2051, false), until(2031, true)]), Some(y2031));
        assert_eq!(not_after(&[until(2031, false), until(2051, true)]), Some(y2031));
    }

    #[test]
    fn of_what_cannot_be_read_no_end_is_told() {
        let odd = CertificateDer::from(vec![1, 2, 3]);
        assert_eq!(not_after(&[]), None);
        assert_eq!(not_after(&[odd.clone(), until(2031, false)]), None);
        let leaf = until(2031, false);
        assert_eq!(
            not_after(&[leaf.clone(), odd]),
            not_after(&[leaf]),
            "of the others what can be"
        );
    }
}
