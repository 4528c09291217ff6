//! One provider of metrics for `/metrics` and for OTLP, and traces by OTLP.
//!
//! ```text
//! instruments -> provider -> Prometheus reader  <- GET /metrics
//!                        `-> periodic reader    -> OTLP/gRPC
//! spans       -> crate::trace::layer -> batches -> OTLP/gRPC
//! ```
//!
//! # Invariants
//!
//! - Nothing of it is global but the subscriber of the process, which
//!   [`super::init`] sets.
//! - A receiver that is away costs what it would have been told: queues are
//!   bounded, and nobody waits for them.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use headwater_store::Entropy;
use headwater_tls::Connector;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, SpanExporter, WithExportConfig, WithTonicConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider,
};
use prometheus::{Encoder as _, Registry, TextEncoder};

use super::receiver::{Receiver, ReceiverError, ReceiverTls};
use crate::daemon::BoxError;
use crate::metrics::credentials::{self, Files};
use crate::metrics::rpc::RpcLayer;
use crate::metrics::{SCOPE, process};
use crate::prices;
use crate::trace::{self, BoxedLayer, CallTraces};

/// Spans that wait to be sent; more are dropped.
const SPANS_QUEUED_MAX: usize = 8_192;
/// Spans of one request.
const SPANS_AT_ONCE: usize = 512;
/// Links of one span: a publication has one for each operation that is traced.
const LINKS_MAX: u32 = 128;
/// Longest time for one request to the receiver, and for the last one at the end.
const SEND_MAX: Duration = Duration::from_secs(5);

/// What is measured and traced, and where it goes.
#[derive(Clone, Debug, clap::Args)]
pub struct TelemetryOptions {
    /// Where traces and metrics are sent by OTLP/gRPC, as
    /// `http://127.0.0.1:4317` or `https://collector.example:4317`. Without it,
    /// and without `OTEL_EXPORTER_OTLP_ENDPOINT`, nothing is sent.
    #[arg(long, value_name = "URL", env = "HEADWATER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// Whom the process trusts there.
    #[command(flatten)]
    pub tls: ReceiverTls,
    /// Share of the calls that begin a trace, 0 to 1, where the caller has not
    /// decided it.
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.01,
        value_parser = share,
        env = "HEADWATER_TRACE_SAMPLE_RATIO"
    )]
    pub trace_sample_ratio: f64,
    /// How often metrics are sent by OTLP, in seconds; 0 for never.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(..=86_400),
        env = "HEADWATER_OTLP_METRICS_SECONDS"
    )]
    pub otlp_metrics_seconds: u64,
    /// Histories that get metrics of their own, with their name as a label: the
    /// first so many that are open, in order of their names. 0: none.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 0,
        value_parser = clap::value_parser!(u64).range(..=1_000),
        env = "HEADWATER_METRICS_HISTORIES_MAX"
    )]
    pub metrics_histories_max: u64,
    /// The price list that the cost of requests is estimated by: a name of
    /// `headwater cost --show-prices`, or `none`. Default: by the URL of the
    /// store.
    #[arg(long, value_name = "NAME", env = "HEADWATER_METRICS_PRICES")]
    pub metrics_prices: Option<String>,
}

impl TelemetryOptions {
    /// Checks what no single flag can.
    ///
    /// # Errors
    ///
    /// [`ReceiverError`], or there are no such prices.
    pub fn check(&self) -> Result<(), BoxError> {
        receiver(self)?;
        prices::of_store("", self.metrics_prices.as_deref())?;
        Ok(())
    }

    /// Reads the certificates for the receiver.
    ///
    /// # Errors
    ///
    /// The file that cannot be used.
    pub async fn check_files(&self) -> Result<(), BoxError> {
        if let Some(receiver) = receiver(self)? {
            receiver.check_files().await?;
        }
        Ok(())
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "it is a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("it is 0 to 1".to_owned()) }
}

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no such receiver.
    #[error(transparent)]
    Receiver(#[from] ReceiverError),
    /// The exporter does not start.
    #[error("OTLP cannot be sent")]
    Exporter(#[from] ExporterBuildError),
    /// The readers do not start.
    #[error("metrics cannot be read")]
    Reader(#[from] OTelSdkError),
}

/// The providers of one process.
#[derive(Debug)]
pub struct Telemetry {
    meters: SdkMeterProvider,
    traces: Option<SdkTracerProvider>,
    registry: Registry,
    /// What the connection to the receiver is made with, where it is TLS.
    receiver: Option<Connector>,
    sampled: f64,
    histories_max: usize,
}

impl Telemetry {
    /// Starts it, for a process of the name `service`. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`StartError`].
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, where there is an endpoint.
    pub fn start(
        service: &'static str,
        options: &TelemetryOptions,
        entropy: &Entropy,
    ) -> Result<Self, StartError> {
        let receiver = receiver(options)?;
        let resource = Resource::builder()
            .with_attributes([
                KeyValue::new("service.name", name_of_service(service)),
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", format!("{:016x}", entropy.u64())),
            ])
            .build();
        let registry = Registry::new();
        let prometheus = opentelemetry_prometheus::exporter()
            .with_registry(registry.clone())
            .scope_info_enabled(false)
            .build()?;
        let mut meters =
            SdkMeterProvider::builder().with_resource(resource.clone()).with_reader(prometheus);
        let mut traces = None;
        if let Some(receiver) = &receiver {
            if options.otlp_metrics_seconds != 0 {
                let exporter = to(MetricExporter::builder().with_tonic(), receiver)?.build()?;
                let every = Duration::from_secs(options.otlp_metrics_seconds);
                let reader = PeriodicReader::builder(exporter).with_interval(every).build();
                meters = meters.with_reader(reader);
            }
            traces = Some(traces_to(receiver, resource)?);
        }
        let telemetry = Self {
            meters: meters.build(),
            sampled: options.trace_sample_ratio,
            traces,
            registry,
            receiver: receiver.and_then(|it| it.tls),
            histories_max: usize::try_from(options.metrics_histories_max).unwrap_or(usize::MAX),
        };
        process::measure(&telemetry.meter());
        telemetry.measure_receiver();
        Ok(telemetry)
    }

    /// Measures whether the files of the connection to the receiver can be used,
    /// and from when until when the certificate that it is shown is good.
    fn measure_receiver(&self) {
        let (meter, files) = (self.meter(), Files::OtlpCertificates);
        let connector = self.receiver.clone();
        let since = move || connector.as_ref().and_then(Connector::stale_since);
        credentials::stale(&meter, files, since);
        let connector = self.receiver.clone();
        let validity = move || connector.as_ref().and_then(Connector::validity);
        credentials::validity(&meter, files, validity);
    }

    /// Looks at those files now and every `interval`, until it is dropped: the
    /// connection goes on for hours, and reads them when it is made.
    pub fn keep_fresh(&self, interval: Duration) -> impl Future<Output = Infallible> + use<> {
        let connector = self.receiver.clone();
        async move {
            match connector {
                Some(it) => it.keep_fresh(interval).await,
                None => std::future::pending().await,
            }
        }
    }

    /// What instruments are made from.
    pub fn meter(&self) -> Meter {
        self.meters.meter(SCOPE)
    }

    /// Histories that get metrics of their own.
    pub fn histories_max(&self) -> usize {
        self.histories_max
    }

    /// The layer that [`super::init`] takes; `None` where no traces are sent.
    pub fn trace_layer(&self) -> Option<BoxedLayer> {
        Some(trace::layer(self.traces.as_ref()?.tracer(SCOPE)))
    }

    /// The outermost layer around the gRPC services.
    pub fn rpc_layer(&self) -> RpcLayer {
        RpcLayer::new(&self.meter())
    }

    /// The layer next to the gRPC services, behind everything that refuses
    /// calls; `None` where no traces are sent.
    pub fn call_traces(&self, entropy: &Entropy) -> Option<CallTraces> {
        self.traces.as_ref().map(|_| CallTraces::new(self.sampled, entropy.u64()))
    }

    /// `/metrics`, for the admin port.
    pub fn routes(&self) -> Router {
        let registry = self.registry.clone();
        Router::new().route("/metrics", get(move || scrape(registry.clone())))
    }

    /// All metrics in the text format of Prometheus.
    ///
    /// # Errors
    ///
    /// [`prometheus::Error`] where they do not encode.
    pub fn text(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// Sends what is left, for a few seconds at most. The last thing that a
    /// process does.
    pub async fn shutdown(self) {
        // The providers have threads of their own, and block until those end.
        let ended = tokio::task::spawn_blocking(move || {
            if let Some(traces) = &self.traces
                && let Err(error) = traces.shutdown_with_timeout(SEND_MAX)
            {
                tracing::warn!(%error, "the last traces were not sent");
            }
            if let Err(error) = self.meters.shutdown_with_timeout(SEND_MAX) {
                tracing::warn!(%error, "the last metrics were not sent");
            }
        });
        if ended.await.is_err() {
            tracing::warn!("telemetry did not end");
        }
    }
}

/// The name that others give the process, or its own.
fn name_of_service(service: &'static str) -> String {
    let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|it| !it.is_empty());
    named.unwrap_or_else(|| service.to_owned())
}

/// By the flag, or the variable that every program with OpenTelemetry reads.
fn receiver(options: &TelemetryOptions) -> Result<Option<Receiver>, ReceiverError> {
    let variable = opentelemetry_otlp::OTEL_EXPORTER_OTLP_ENDPOINT;
    let found = options.otlp_endpoint.clone().or_else(|| std::env::var(variable).ok());
    let found = found.filter(|it| !it.is_empty());
    found.map(|it| Receiver::new(it, &options.tls)).transpose()
}

/// An exporter that sends to the receiver.
fn to<B: WithExportConfig + WithTonicConfig>(
    exporter: B,
    receiver: &Receiver,
) -> Result<B, StartError> {
    let exporter = exporter.with_endpoint(&receiver.endpoint).with_timeout(SEND_MAX);
    Ok(match receiver.channel()? {
        Some(channel) => exporter.with_channel(channel),
        None => exporter,
    })
}

fn traces_to(receiver: &Receiver, resource: Resource) -> Result<SdkTracerProvider, StartError> {
    let exporter = to(SpanExporter::builder().with_tonic(), receiver)?.build()?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(SPANS_QUEUED_MAX)
        .with_max_export_batch_size(SPANS_AT_ONCE)
        .with_scheduled_delay(Duration::from_secs(1))
        .build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
    // Whoever makes a root has decided that it is wanted.
    Ok(SdkTracerProvider::builder()
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
        .with_max_links_per_span(LINKS_MAX)
        .with_resource(resource)
        .with_span_processor(processor)
        .build())
}

async fn scrape(registry: Registry) -> Response {
    // It looks into /proc and takes every lock of the provider once.
    let encoded = tokio::task::spawn_blocking(move || {
        TextEncoder::new().encode_to_string(&registry.gather())
    });
    match encoded.await {
        Ok(Ok(text)) => {
            ([(header::CONTENT_TYPE, TextEncoder::new().format_type().to_owned())], text)
                .into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "metrics were not read\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        telemetry: TelemetryOptions,
    }

    fn options(arguments: &[&str]) -> TelemetryOptions {
        let all = ["headwater"].iter().chain(arguments);
        Arguments::try_parse_from(all).unwrap().telemetry
    }

    #[test]
    fn a_share_is_a_share() {
        for bad in ["-0.1", "1.1", "NaN", "all"] {
            let arguments = ["headwater", "--trace-sample-ratio", bad];
            assert!(Arguments::try_parse_from(arguments).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_measured_can_be_scraped() {
        let entropy = Entropy::from_seed(1);
        let telemetry = Telemetry::start("test", &options(&[]), &entropy).unwrap();
        let counter = telemetry.meter().u64_counter("headwater.test").with_unit("By").build();
        counter.add(7, &[]);
        let text = telemetry.text().unwrap();
        assert!(text.lines().any(|it| it == "headwater_test_bytes_total 7"), "{text}");
        assert!(text.contains("process_uptime_seconds"), "{text}");
        assert!(telemetry.trace_layer().is_none(), "nobody receives traces");
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_certificate_that_the_receiver_is_shown_ends_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut shown = rcgen::CertificateParams::new(vec!["h.example".to_owned()]).unwrap();
        shown.not_before = rcgen::date_time_ymd(2030, 12, 31);
        shown.not_after = rcgen::date_time_ymd(2031, 1, 1);
        std::fs::write(path("crt"), shown.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        let (certificate, key) = (path("crt"), path("key"));
        let files = ["--otlp-tls-cert", &certificate, "--otlp-tls-key", &key];
        let to = ["--otlp-endpoint", "https://127.0.0.1:1", "--otlp-metrics-seconds", "0"];
        let options = options(&[&to[..], &files].concat());
        let telemetry = Telemetry::start("test", &options, &Entropy::from_seed(1)).unwrap();
        let measured = |name: &str| {
            let line =
                format!("headwater_credentials_{name}_seconds{{files=\"otlp_certificates\"}} ");
            let text = telemetry.text().unwrap();
            text.lines().find_map(|it| it.strip_prefix(&line)?.parse::<f64>().ok())
        };
        let looked = async || {
            let watching = telemetry.keep_fresh(Duration::from_secs(60));
            assert!(tokio::time::timeout(Duration::from_secs(30), watching).await.is_err());
        };
        assert_eq!(measured("expiry_time"), None, "nothing was read yet");

        looked().await;
        // By `date -u -d 2031-01-01 +%s`, and a day before.
        let told = || (measured("start_time"), measured("expiry_time"));
        assert_eq!(told(), (Some(1_924_905_600.0), Some(1_924_992_000.0)));
        assert_eq!(measured("stale"), Some(0.0));

        std::fs::write(path("crt"), "nothing").unwrap();
        looked().await;
        assert_eq!(told().1, Some(1_924_992_000.0), "the old one is in use");
        assert!(measured("stale").is_some_and(|it| 0.0 < it));
    }
}
