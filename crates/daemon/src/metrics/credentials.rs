//! Certificates, keys and rights whose files cannot be used any more, and
//! certificates that end.
//!
//! What was read before stays in use, so nothing fails at first: certificates
//! expire later, and a token that was taken away goes on being good.

use headwater_tls::Validity;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter};
use tokio::time::Instant;

use super::Label as _;
use crate::label;

label! {
    /// Files that are used together.
    pub enum Files: "files" {
        /// Certificate, key and authorities of the gRPC port.
        Certificates = "certificates",
        /// Those of the admin port.
        AdminCertificates = "admin_certificates",
        /// The file of rights, with the keys of issuers.
        Rights = "rights",
        /// Certificate, key and authorities of connections to writers.
        WritersCertificates = "writers_certificates",
        /// The token that is shown to writers.
        WritersToken = "writers_token",
        /// Certificate, key and authorities of the connection to the receiver of
        /// OTLP.
        OtlpCertificates = "otlp_certificates",
    }
}

/// Measures for how long `files` cannot be used. `since` says since when.
pub fn stale(
    meter: &Meter,
    files: Files,
    since: impl Fn() -> Option<Instant> + Send + Sync + 'static,
) {
    let label = [KeyValue::new(Files::NAME, files.as_str())];
    let _kept_by_the_meter = meter
        .f64_observable_gauge("headwater.credentials.stale")
        .with_unit("s")
        .with_description(
            "Time since files of certificates or rights cannot be used, and what was read before \
             is in use in their place; 0 while all is well.",
        )
        .with_callback(move |observer| {
            let stale = since().map_or(0.0, |it| it.elapsed().as_secs_f64());
            observer.observe(stale, &label);
        })
        .build();
}

/// Measures from when until when the certificate in `files` is good, in seconds
/// since 1970. `validity` says it; nothing is told where there is none.
pub fn validity(
    meter: &Meter,
    files: Files,
    validity: impl Fn() -> Option<Validity> + Clone + Send + Sync + 'static,
) {
    let label = [KeyValue::new(Files::NAME, files.as_str())];
    let told = move |time: fn(Validity) -> u64| {
        let (label, validity) = (label.clone(), validity.clone());
        move |observer: &dyn AsyncInstrument<u64>| {
            if let Some(it) = validity() {
                observer.observe(time(it), &label);
            }
        }
    };
    let _kept_by_the_meter = meter
        .u64_observable_gauge("headwater.credentials.expiry.time")
        .with_unit("s")
        .with_description(
            "When the certificate that is shown ends, or one above it in the same file that ends \
             before it, as seconds since 1970 (UTC).",
        )
        .with_callback(told(|it| it.ends_at))
        .build();
    let _kept_by_the_meter = meter
        .u64_observable_gauge("headwater.credentials.start.time")
        .with_unit("s")
        .with_description(
            "When the certificate whose end is told by headwater_credentials_expiry_time_seconds \
             began to be good, as seconds since 1970 (UTC).",
        )
        .with_callback(told(|it| it.begins_at))
        .build();
}
