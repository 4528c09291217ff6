//! The probes find what each kind of careless server does, and name it.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use headwater_s3_double::{ACCESS_KEY_ID, Conduct, S3Double, SECRET_ACCESS_KEY, WriteLimit};
use headwater_store::probe::{
    CheckId, Permission, Probe, ProbeConfig, Report, Severity, TagForm, TagKind, TagSource, Unfit,
    Verdict, check_at_start,
};
use headwater_store::{Entropy, Memory, S3Bucket, S3Credentials, S3Options, Store};

/// Enough to see what is there; less than on a user's bucket.
const SMALL: ProbeConfig = ProbeConfig {
    n_racers: 8,
    n_rounds: 3,
    n_samples: 3,
    large_len_bytes: 100_000,
    measure_max: Duration::from_millis(50),
};

async fn start(names: &[&str]) -> S3Double {
    let double = S3Double::start().await.unwrap();
    let conduct = names.iter().fold(Conduct::default(), |it, name| it.with(name).unwrap());
    double.set_conduct(conduct);
    double
}

fn open(double: &S3Double) -> Arc<dyn Store> {
    let credentials = S3Credentials {
        access_key_id: ACCESS_KEY_ID.into(),
        secret_access_key: SECRET_ACCESS_KEY.into(),
    };
    let options = S3Options::parse(&double.url("a root")).unwrap();
    Arc::new(S3Bucket::open(&S3Options { credentials: Some(credentials), ..options }).unwrap())
}

/// Examines a bucket of this conduct, and cleans up.
async fn examine(names: &[&str]) -> Report {
    let double = start(names).await;
    let probe = Probe::new(open(&double), open(&double), Entropy::from_os(), SMALL);
    let report = probe.run(&|_| ()).await;
    let left = probe.clean().await;
    assert_eq!(left.n_left > 0, names.contains(&"no-delete"), "{left:?}");
    double.set_conduct(Conduct::default());
    let rest = open(&double).list("", None, 10).await.unwrap();
    assert_eq!(rest.is_empty(), left.n_left == 0, "{rest:?}");
    report
}

fn named(report: &Report, verdict: Verdict) -> Vec<&'static str> {
    report.with(verdict).map(|it| it.id.as_str()).collect()
}

fn detail(report: &Report, id: CheckId) -> String {
    report.checks.iter().find(|it| it.id == id).unwrap().detail.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_careful_server_passes_and_is_measured() {
    for (names, source) in [(&[][..], TagSource::Content), (&["unique-tags"], TagSource::Unique)] {
        let report = examine(names).await;

        assert_eq!(report.severity(), Severity::Fit, "{report:#?}");
        assert_eq!(report.checks.len(), 17, "{report:#?}");
        let tag = TagKind { source: Some(source), form: TagForm::Quoted };
        assert_eq!(report.tag, Some(tag));
        assert!(report.races.iter().all(|it| it.n_rounds == 3 && it.n_lost == 0));
        assert_eq!(report.latencies.len(), 8);
        assert!(0 < report.replacements.unwrap().n_replaced);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_loses_writes_is_broken_and_named() {
    for (name, broken, words) in [
        ("if-match-ignored", CheckId::StaleTag, "If-Match is ignored"),
        ("conditions-ignored", CheckId::CreateOnce, "If-None-Match is ignored"),
        ("creates-race", CheckId::CreateRace, "acknowledged and lost"),
        ("race", CheckId::ReplaceRace, "acknowledged and lost"),
        ("not-modified", CheckId::StaleTag, "not 412"),
        ("weak-tags", CheckId::Tag, "weak ETag"),
        ("unquoted-tags", CheckId::OwnTag, "another form"),
    ] {
        let report = examine(&[name]).await;

        assert_eq!(report.severity(), Severity::Unfit, "{name}: {report:#?}");
        assert!(named(&report, Verdict::Broken).contains(&broken.as_str()), "{name}: {report:#?}");
        assert!(detail(&report, broken).contains(words), "{name}: {report:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_race_is_found_where_one_request_at_a_time_is_right() {
    let report = examine(&["race"]).await;

    let broken = named(&report, Verdict::Broken);
    assert_eq!(broken, ["create-race", "replace-race"], "{report:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_late_listing_is_a_warning() {
    let report = examine(&["late-listing"]).await;

    assert_eq!(named(&report, Verdict::Warns), ["list-is-current"], "{report:#?}");
    assert_eq!(report.severity(), Severity::Warned);
    assert!(detail(&report, CheckId::ListIsCurrent).contains("ms after"), "{report:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_that_ignore_their_condition_are_a_warning_in_both_forms() {
    let report = examine(&["reads-ignore-conditions"]).await;

    assert_eq!(named(&report, Verdict::Warns), ["conditional-read"], "{report:#?}");
    assert_eq!(report.severity(), Severity::Warned, "it costs, and harms nothing");
    let said = detail(&report, CheckId::ConditionalRead);
    assert!(said.contains("If-None-Match is ignored on reads"), "{said}");

    let double = start(&["reads-ignore-conditions"]).await;
    let short = check_at_start(&open(&double), &Entropy::from_os()).await.unwrap();
    assert_eq!(named(&short, Verdict::Warns), ["conditional-read"], "{short:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn parts_that_ignore_their_condition_are_a_warning_and_one_request_is_not() {
    let double = start(&["parts-ignore-conditions"]).await;
    let config = ProbeConfig { large_len_bytes: 33 << 20, ..SMALL };
    let open = |multipart| {
        let credentials = S3Credentials {
            access_key_id: ACCESS_KEY_ID.into(),
            secret_access_key: SECRET_ACCESS_KEY.into(),
        };
        let options = S3Options::parse(&double.url("a root")).unwrap();
        let options =
            S3Options { credentials: Some(credentials), multipart: Some(multipart), ..options };
        let store: Arc<dyn Store> = Arc::new(S3Bucket::open(&options).unwrap());
        Probe::new(Arc::clone(&store), store, Entropy::from_os(), config)
    };
    for (multipart, verdict) in [(true, Verdict::Warns), (false, Verdict::Holds)] {
        let probe = open(multipart);

        let check = probe.run_large().await;

        assert_eq!((check.id, check.verdict), (CheckId::LargeObjects, verdict), "{check:?}");
        assert_eq!(probe.clean().await.n_left, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn permissions_that_are_missing_are_named() {
    for (name, permission, severity) in [
        ("no-put", Permission::Put, Severity::Unfit),
        ("no-get", Permission::Get, Severity::Unfit),
        ("no-list", Permission::List, Severity::Warned),
        ("no-delete", Permission::Delete, Severity::Warned),
    ] {
        let report = examine(&[name]).await;

        assert_eq!(report.denied, [permission], "{name}");
        assert_eq!(report.severity(), severity, "{name}: {report:#?}");
        let text = format!("{report:?}");
        assert!(text.contains(&format!("{} is missing", permission.s3_action())), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_limit_of_writes_is_measured_and_breaks_no_rule() {
    for status in [429, 503] {
        // As on GCS, where it is a second.
        let interval = Duration::from_millis(300);
        let limit = WriteLimit { interval, status, ..WriteLimit::ONE_A_SECOND };
        let double = start(&[]).await;
        double.set_conduct(Conduct { limit: Some(limit), ..Conduct::default() });
        let probe = Probe::new(open(&double), open(&double), Entropy::from_os(), SMALL);

        let report = probe.run(&|_| ()).await;

        assert_eq!(report.severity(), Severity::Fit, "{status}: {report:#?}");
        let rate = report.replacements.unwrap();
        assert!(0 < rate.n_throttled && rate.n_replaced <= 1, "{status}: {rate:?}");
        assert!(report.races.iter().all(|it| it.n_rounds == 3), "{status}: {report:#?}");
        assert_eq!(probe.clean().await.n_left, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bucket_that_does_not_answer_is_not_called_broken() {
    let mut double = start(&[]).await;
    let store = open(&double);
    double.stop().await;

    let probe = Probe::new(Arc::clone(&store), store, Entropy::from_os(), SMALL);
    let report = probe.run(&|_| ()).await;

    assert_eq!(report.severity(), Severity::Unanswered, "{report:#?}");
    assert_eq!(named(&report, Verdict::Broken), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bucket_that_does_not_exist_is_said_to() {
    let double = start(&[]).await;
    let url = double.url("x").replacen("headwater", "elsewhere", 1);
    let options = S3Options::parse(&url).unwrap();
    let credentials = S3Credentials {
        access_key_id: ACCESS_KEY_ID.into(),
        secret_access_key: SECRET_ACCESS_KEY.into(),
    };
    let bucket = S3Bucket::open(&S3Options { credentials: Some(credentials), ..options }).unwrap();
    let store: Arc<dyn Store> = Arc::new(bucket);

    let probe = Probe::new(Arc::clone(&store), store, Entropy::from_os(), SMALL);
    let report = probe.run(&|_| ()).await;

    assert!(detail(&report, CheckId::Reachable).contains("elsewhere"), "{report:#?}");
    assert_eq!(report.severity(), Severity::Unfit);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_short_form_refuses_what_loses_writes_and_cleans_up() {
    let entropy = Entropy::from_os();
    for name in [
        "if-match-ignored",
        "conditions-ignored",
        "creates-race",
        "race",
        "not-modified",
        "weak-tags",
        "unquoted-tags",
        "no-put",
    ] {
        let double = start(&[name]).await;
        let store = open(&double);
        let error = check_at_start(&store, &entropy).await.unwrap_err();
        assert!(matches!(&error, Unfit::Broken(_)), "{name}: {error}");
        double.set_conduct(Conduct::default());
        assert_eq!(store.list("", None, 10).await.unwrap(), [], "{name}");
    }
    for name in ["unique-tags", "quoted-tags", "late-listing", "no-list", "one-a-second"] {
        let double = start(&[name]).await;
        let store = open(&double);
        let report = check_at_start(&store, &entropy).await;
        let report = report.unwrap_or_else(|it| panic!("{name}: {it}"));
        let denied = if name == "no-list" { &[Permission::List][..] } else { &[] };
        assert_eq!(report.denied, denied, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_short_form_names_permissions() {
    let entropy = Entropy::from_os();
    let double = start(&["no-put"]).await;
    let error = check_at_start(&open(&double), &entropy).await.unwrap_err();
    assert!(error.to_string().contains("s3:PutObject is missing"), "{error}");
    let double = start(&["no-delete"]).await;
    let report = check_at_start(&open(&double), &entropy).await.unwrap();
    assert_eq!(report.denied, [Permission::Delete]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_short_form_is_about_a_hundred_requests() {
    let double = start(&[]).await;
    let store = open(&double);
    let before = double.requests().all().len();

    check_at_start(&store, &Entropy::from_os()).await.unwrap();

    let n_requests = double.requests().all().len() - before;
    assert!((50..250).contains(&n_requests), "{n_requests}");
}

#[tokio::test]
async fn an_interrupted_examination_is_cleaned_up() {
    let memory = Memory::new();
    let store: Arc<dyn Store> = Arc::new(memory.clone());
    let probe = Probe::new(Arc::clone(&store), store, Entropy::from_os(), SMALL);
    assert!(probe.prefix().starts_with("~probe-"));
    {
        let quiet = |_| ();
        let run = probe.run(&quiet);
        tokio::pin!(run);
        // Some way in.
        for _ in 0..40 {
            if tokio::time::timeout(Duration::from_micros(200), &mut run).await.is_ok() {
                break;
            }
            if !memory.list("", None, 1).await.unwrap().is_empty() {
                break;
            }
        }
    }
    assert!(!memory.list("", None, 1).await.unwrap().is_empty(), "it had written something");

    let left = probe.clean().await;

    assert!(0 < left.n_deleted && left.n_left == 0, "{left:?}");
    assert_eq!(memory.list("", None, 1).await.unwrap(), []);
}
