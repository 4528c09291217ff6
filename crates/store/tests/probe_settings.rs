//! What a bucket of Google Cloud Storage says that it is set to.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use headwater_s3_double::{ACCESS_TOKEN, Conduct, GcsDouble, LifecycleRule, Op, Versioning};
use headwater_store::probe::{Check, CheckId, Probe, ProbeConfig, Severity, Verdict};
use headwater_store::{Entropy, GcsBucket, GcsOptions, Store};

const SMALL: ProbeConfig = ProbeConfig {
    n_racers: 4,
    n_rounds: 1,
    n_samples: 1,
    large_len_bytes: 1_000,
    measure_max: Duration::from_millis(10),
};

fn open(double: &GcsDouble) -> GcsBucket {
    let options = GcsOptions::parse(&double.url("lake")).unwrap();
    GcsBucket::open(&GcsOptions { access_token: Some(ACCESS_TOKEN.into()), ..options }).unwrap()
}

/// The answers about versions, rules and clock, and what all of it comes to.
async fn settings(conduct: Conduct) -> ([Check; 3], Severity) {
    let double = GcsDouble::start().await.unwrap();
    double.set_conduct(conduct);
    let store: Arc<dyn Store> = Arc::new(open(&double));
    let probe = Probe::new(Arc::clone(&store), store, Entropy::from_os(), SMALL)
        .with_gcs_settings(open(&double), "lake");
    let report = probe.run(&|_| ()).await;
    assert_eq!(probe.clean().await.n_left, 0);
    let check = |id| report.checks.iter().find(|it| it.id == id).unwrap().clone();
    let ids = [CheckId::Versioning, CheckId::Lifecycle, CheckId::Clock];
    (ids.map(check), report.severity())
}

fn verdicts(checks: &[Check; 3]) -> [Verdict; 3] {
    checks.each_ref().map(|it| it.verdict)
}

fn rule(prefix: &str, expire_days: Option<i32>, noncurrent_days: Option<i32>) -> LifecycleRule {
    LifecycleRule { id: "r".into(), prefix: prefix.into(), expire_days, noncurrent_days }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_keeps_and_deletes_nothing_is_fit() {
    let (checks, severity) = settings(Conduct::default()).await;
    assert_eq!(verdicts(&checks), [Verdict::Holds; 3], "{checks:?}");
    assert_eq!(severity, Severity::Fit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_harm_a_history_are_named() {
    let conduct = Conduct {
        versioning: Versioning::Enabled,
        lifecycle: vec![rule("lake/", Some(30), None)],
        clock_ahead_s: 300,
        ..Conduct::default()
    };
    let (checks, severity) = settings(conduct).await;
    assert_eq!(verdicts(&checks), [Verdict::Warns, Verdict::Broken, Verdict::Warns], "{checks:?}");
    assert_eq!(severity, Severity::Unfit);
    assert!(checks[1].detail.contains("after 30 days"), "{checks:?}");

    // Rules about other keys, and one that deletes old versions.
    let conduct = Conduct {
        versioning: Versioning::Enabled,
        lifecycle: vec![rule("other/", Some(30), None), rule("", None, Some(1))],
        ..Conduct::default()
    };
    let (checks, _) = settings(conduct).await;
    assert_eq!(verdicts(&checks), [Verdict::Holds; 3], "{checks:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soft_deletion_keeps_every_head_and_is_said() {
    let (checks, severity) = settings(Conduct { soft_delete_days: 7, ..Conduct::default() }).await;
    assert_eq!(verdicts(&checks), [Verdict::Warns, Verdict::Holds, Verdict::Holds], "{checks:?}");
    assert!(checks[0].detail.contains("for 7 days"), "{checks:?}");
    assert_eq!(severity, Severity::Warned);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_ask_may_use_it() {
    let denied = [Op::Settings].into();
    let (checks, severity) = settings(Conduct { denied, ..Conduct::default() }).await;
    // A refusal has a date as well.
    assert_eq!(verdicts(&checks), [Verdict::Open, Verdict::Open, Verdict::Holds], "{checks:?}");
    assert!(checks[0].detail.contains("storage.buckets.get"), "{checks:?}");
    assert_eq!(severity, Severity::Fit);
}
