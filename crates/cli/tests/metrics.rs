//! What a live process measures is what the rules, the dashboard and the page
//! say.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::Value;
use support::{Served, wait_until};

/// Set to write docs/metrics.md anew.
const UPDATE: &str = "HEADWATER_UPDATE_METRICS_PAGE";

/// A family of metrics as a scrape has it.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    /// Values of each label.
    labels: BTreeMap<String, BTreeSet<String>>,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn scrape(served: &Served) -> String {
    let mut stream = TcpStream::connect(served.admin.as_ref().unwrap()).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// `name` and what is in its braces.
fn parts(sample: &str) -> (&str, Vec<(String, String)>) {
    let Some((name, rest)) = sample.split_once('{') else {
        return (sample.split(' ').next().unwrap(), Vec::new());
    };
    let inside = rest.rsplit_once('}').unwrap().0;
    let pairs = inside.split("\",").filter(|it| !it.is_empty()).map(|it| {
        let (label, value) = it.split_once("=\"").unwrap();
        (label.trim_start_matches(',').to_owned(), value.trim_end_matches('"').to_owned())
    });
    (name, pairs.collect())
}

/// By the names of their samples: those of histograms with their endings.
fn families(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            help.clone_into(&mut families.entry(name.to_owned()).or_default().help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            kind.clone_into(&mut families.entry(name.to_owned()).or_default().kind);
        } else if !line.is_empty() && line.starts_with(|it: char| it.is_ascii_alphabetic()) {
            let (name, labels) = parts(line);
            let family = families.entry(family_of(name).to_owned()).or_default();
            for (label, value) in labels {
                family.labels.entry(label).or_default().insert(value);
            }
        }
    }
    families
}

fn family_of(name: &str) -> &str {
    let ended = ["_bucket", "_sum", "_count"].iter().find_map(|it| name.strip_suffix(it));
    // A gauge may be a count by its own name.
    ended.filter(|it| !it.ends_with("file_descriptor") && !it.ends_with("thread")).unwrap_or(name)
}

/// Names of metrics in an expression, each with the matchers behind it.
fn named(expression: &str) -> Vec<(String, String)> {
    let is_word = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(at) = rest.find(|it: char| it.is_ascii_alphabetic()) {
        rest = &rest[at..];
        let end = rest.find(|it: char| !is_word(it)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        let is_ours = ["headwater_", "rpc_", "process_"].iter().any(|it| word.starts_with(it));
        if is_ours && !word.starts_with("rpc_method") && !word.starts_with("rpc_response") {
            let matchers = after.strip_prefix('{').and_then(|it| it.split_once('}'));
            found.push((word.to_owned(), matchers.map_or("", |it| it.0).to_owned()));
            rest = matchers.map_or(after, |it| it.1);
        }
    }
    found
}

/// Labels that expressions group by.
fn grouped(expression: &str) -> Vec<String> {
    let groups = expression.split(" by (").skip(1).map(|it| it.split(')').next().unwrap());
    groups.flat_map(|it| it.split(',')).map(|it| it.trim().to_owned()).collect()
}

fn expressions() -> Vec<(String, String)> {
    let rules = fs::read_to_string(repository().join("deploy/alerts/rules.yaml")).unwrap();
    let rules = rules.lines().filter_map(|it| it.trim().strip_prefix("expr: "));
    let rules = rules.map(|it| ("rules.yaml".to_owned(), it.to_owned()));
    let board = fs::read_to_string(repository().join("deploy/dashboard/headwater.json")).unwrap();
    let board: Value = serde_json::from_str(&board).unwrap();
    let panels = board["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let title = panel["title"].as_str().unwrap().to_owned();
        targets.into_iter().map(move |it| (title.clone(), it["expr"].as_str().unwrap().to_owned()))
    });
    rules.chain(targets).collect()
}

/// A writer and a replica that have done everything once.
fn loaded(root: &Path) -> Served {
    let sweeps = ["--writer-sweep-every-ms", "200", "--writer-sweep-grace-ms", "200"];
    let options = ["--admin-listen", "127.0.0.1:0", "--metrics-prices", "s3-standard"];
    // Shown to no other writer here, and measured.
    let (certificate, key) = (root.join("shown.crt"), root.join("shown.key"));
    let shown = rcgen::generate_simple_self_signed(vec!["h.example".to_owned()]).unwrap();
    fs::write(&certificate, shown.cert.pem()).unwrap();
    fs::write(&key, shown.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let shown = ["--writers-tls-cert", certificate, "--writers-tls-key", key];
    let measured = ["--metrics-histories-max", "10"];
    let options = [&options[..], &measured, &sweeps[..], &shown[..]].concat();
    let served = Served::start_on(root, "127.0.0.1:0", &options);
    served.ask(&["create", "measured"]);
    served.ask(&["put", "measured", "key", "value"]);
    served.ask(&["get", "measured", "key"]);
    for n in 0..12 {
        served.ask(&["put", "measured", &format!("key-{n}"), "value"]);
    }
    served.ask(&["get", "measured", "key-1"]);
    // One that is not there.
    assert_ne!(served.run(&["get", "nothing", "key"]).code, 0);
    wait_until("certificates were read", || scrape(&served).contains("_expiry_time_seconds{"));
    wait_until("a sweep", || {
        served.ask(&["put", "measured", "key", "again"]);
        scrape(&served).contains("headwater_sweep_duration_seconds_count")
    });
    served
}

fn check_expressions(families: &BTreeMap<String, Family>) {
    let scraped_by_prometheus = ["instance", "job", "le"];
    let mut n_metrics = 0;
    for (place, expression) in expressions() {
        let named = named(&expression);
        assert!(!named.is_empty(), "{place}: no metric in {expression}");
        let mut labels = BTreeSet::new();
        for (name, matchers) in &named {
            n_metrics += 1;
            let family = families.get(family_of(name));
            let family = family.unwrap_or_else(|| panic!("{place}: there is no {name}"));
            labels.extend(family.labels.keys().cloned());
            for matcher in matchers.split("\",").filter(|it| !it.is_empty()) {
                let (label, values) = matcher.split_once(['=', '!']).unwrap();
                let known = family.labels.get(label.trim());
                let known = known.unwrap_or_else(|| panic!("{place}: {name} has no {label}"));
                // Counters have all their values from the start.
                let values = values.trim_start_matches(['=', '~', '"']).trim_end_matches('"');
                if family.kind == "counter" && !values.contains(['.', '*']) {
                    for value in values.split('|') {
                        assert!(known.contains(value), "{place}: {name} is never {label}={value}");
                    }
                }
            }
        }
        for label in grouped(&expression) {
            let is_known = scraped_by_prometheus.contains(&label.as_str());
            assert!(is_known || labels.contains(&label), "{place}: nothing has the label {label}");
        }
    }
    assert!(40 < n_metrics, "{n_metrics}");
}

fn page(families: &BTreeMap<String, Family>) -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         What `/metrics` on the admin port has. OTLP has the same with dots for underscores, and\n\
         without the unit and `_total` at the end. This page is made from a live process; a test\n\
         compares them.\n\
         [Telemetry](telemetry.md) says how to get them.\n\n\
         | metric | kind | labels | what it is |\n| --- | --- | --- | --- |\n",
    );
    let ours = ["headwater_", "rpc_", "process_"];
    for (name, it) in families.iter().filter(|(name, _)| ours.iter().any(|it| name.starts_with(it)))
    {
        let labels: Vec<_> = it.labels.keys().filter(|it| *it != "le").cloned().collect();
        let _infallible =
            writeln!(page, "| `{name}` | {} | {} | {} |", it.kind, labels.join(", "), it.help);
    }
    page
}

#[test]
fn rules_dashboard_and_page_say_what_a_live_process_measures() {
    let root = tempfile::tempdir().unwrap();
    let served = loaded(root.path());
    let families = families(&scrape(&served));

    check_expressions(&families);

    let path = repository().join("docs/metrics.md");
    let page = page(&families);
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap();
    assert_eq!(found, page, "set {UPDATE}=1 to write the page anew");
}

#[test]
fn no_operation_id_and_no_key_is_a_label() {
    let root = tempfile::tempdir().unwrap();
    let options = ["--admin-listen", "127.0.0.1:0"];
    let served = Served::start_on(root.path(), "127.0.0.1:0", &options);
    served.ask(&["create", "measured"]);
    served.ask(&["put", "measured", "a-very-secret-key", "value"]);
    let text = scrape(&served);
    assert!(text.contains("headwater_publications_total"), "{text}");
    // Nor the history, unless that is asked for.
    for word in ["a-very-secret-key", "operation_id", "measured\""] {
        assert!(!text.contains(word), "{word}");
    }
}

#[test]
fn every_alert_has_its_page() {
    let rules = fs::read_to_string(repository().join("deploy/alerts/rules.yaml")).unwrap();
    let tests = fs::read_to_string(repository().join("deploy/alerts/rules_test.yaml")).unwrap();
    let alerts: Vec<_> =
        rules.lines().filter_map(|it| it.trim().strip_prefix("- alert: ")).collect();
    assert!(10 <= alerts.len());
    for alert in alerts {
        let page = format!("docs/runbook/{alert}.md");
        assert!(rules.contains(&format!("runbook: {page}")), "{alert} has no link");
        let text = fs::read_to_string(repository().join(&page)).expect(&page);
        for part in ["What it means", "How urgent", "What to look at", "What to do"] {
            assert!(text.contains(&format!("## {part}\n")), "{page}: {part}");
        }
        let n_tests = tests.matches(&format!("alertname: {alert}\n")).count();
        assert!(2 <= n_tests, "{alert}: one test that it fires, one that it does not");
    }
}
