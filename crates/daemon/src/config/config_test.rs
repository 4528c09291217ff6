//! Flag over variable over file over default. Variables are given by the test
//! process's own environment, which other tests share, so those here have names
//! that nothing else uses.

use std::ffi::OsString;
use std::io::Write as _;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Colour {
    Red,
    Green,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Keys {
    #[arg(long)]
    store_key_file: Option<PathBuf>,
    #[arg(long, hide_env_values = true)]
    store_key_command: Option<String>,
}

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    config: ConfigOptions,
    /// What is logged.
    #[arg(long)]
    log: Option<String>,
    #[arg(long)]
    store: String,
    #[command(flatten)]
    keys: Keys,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=10))]
    writer_batches_max: u64,
    #[arg(long, default_value_t = 100)]
    writer_queue_bytes_max: usize,
    #[arg(long, value_delimiter = ',')]
    writer: Vec<String>,
    #[arg(long)]
    trust_store: bool,
    #[arg(long, value_enum, default_value = "red")]
    colour: Colour,
    /// `PATH` is set wherever tests run.
    #[arg(long, default_value = "none", env = "PATH")]
    path: String,
}

struct Read {
    loaded: Loaded,
    arguments: Arguments,
}

fn load_file(text: &str, flags: &[&str]) -> Result<Read, LoadError> {
    let mut file = tempfile::NamedTempFile::with_prefix("settings").unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let mut line: Vec<OsString> = vec!["headwater".into(), "--config".into(), file.path().into()];
    line.extend(flags.iter().map(OsString::from));
    let loaded = load(Arguments::command(), line, None)?;
    let arguments = Arguments::from_arg_matches(&loaded.matches)?;
    Ok(Read { loaded, arguments })
}

fn read(text: &str, flags: &[&str]) -> Read {
    load_file(text, flags).unwrap_or_else(|error| panic!("{error}"))
}

/// What is wrong, without the name of the file.
fn refusal(text: &str, flags: &[&str]) -> String {
    let Err(LoadError::File(error)) = load_file(text, flags) else { panic!("{text} is fit") };
    let error = error.to_string();
    let (file, rest) = error.split_once(':').unwrap();
    assert!(file.contains("settings"), "{error}");
    rest.to_owned()
}

#[test]
fn a_flag_goes_before_a_variable_before_the_file_before_the_default() {
    let file = "store = 'memory:'\npath = 'file'\nwriter-queue-bytes-max = 7\n";

    let it = read(file, &[]).arguments;
    assert_eq!((it.writer_queue_bytes_max, it.writer_batches_max), (7, 5));
    assert_eq!(it.path, std::env::var("PATH").unwrap(), "the variable");
    let it = read(file, &["--path", "flag", "--writer-queue-bytes-max", "8"]).arguments;
    assert_eq!((it.writer_queue_bytes_max, &*it.path), (8, "flag"));
}

#[test]
fn a_table_is_the_beginning_of_names() {
    let flat = "store = 'memory:'\nwriter-queue-bytes-max = 7\nwriter-batches-max = 2";
    let tables = "store = 'memory:'\n[writer]\nqueue-bytes-max = 7\n[writer.batches]\nmax = 2";
    for text in [flat, tables] {
        let it = read(text, &[]).arguments;
        assert_eq!((it.writer_queue_bytes_max, it.writer_batches_max), (7, 2), "{text}");
    }
}

#[test]
fn every_type_that_a_setting_has_can_stand_in_a_file() {
    let text = "store = 'memory:'\nwriter = ['a:1', 'b:2']\ntrust-store = true\n\
                colour = 'green'\nwriter-batches-max = 0x0a\nlog = 'debug'";
    let it = read(text, &[]).arguments;

    assert_eq!((it.store.as_str(), it.writer), ("memory:", vec!["a:1".into(), "b:2".into()]));
    assert!(it.trust_store);
    assert_eq!((it.colour, it.writer_batches_max), (Colour::Green, 10));
    assert_eq!(read("store = 's'\nwriter = 'a:1'", &[]).arguments.writer, ["a:1"]);
    assert_eq!(read("store = 's'\nwriter = []", &[]).arguments.writer, Vec::<String>::new());
    assert!(!read("store = 's'\ntrust-store = false", &[]).arguments.trust_store);
}

#[test]
fn what_must_be_given_may_be_given_by_the_file() {
    assert_eq!(read("store = 'memory:'", &[]).arguments.store, "memory:");
    let error = load_file("colour = 'red'", &[]).err().unwrap();
    assert!(matches!(error, LoadError::Arguments(_)), "{error}");
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_name() {
    assert_eq!(
        refusal("store = 's'\n\n[writer]\nqueue_bytes_max = 7", &[]),
        "4: there is no setting `writer-queue_bytes_max`; did you mean `writer-queue-bytes-max`?"
    );
    assert_eq!(refusal("store = 's'\nzzzzzz = 1", &[]), "2: there is no setting `zzzzzz`");
    assert!(refusal("config = 'other.toml'", &[]).contains("no setting `config`"));
}

#[test]
fn a_wrong_type_is_refused_with_what_is_expected() {
    let wrong = [
        (
            "writer-queue-bytes-max = '7'",
            "1: `writer-queue-bytes-max` is \"7\"; expected a whole number",
        ),
        (
            "writer-queue-bytes-max = 7.5",
            "1: `writer-queue-bytes-max` is a fraction; expected a whole number",
        ),
        ("trust-store = 1", "1: `trust-store` is 1; expected true or false"),
        ("store = ['a', 'b']", "1: `store` is a list; expected text"),
        ("writer = [1]", "1: `writer` is 1; expected text, or a list of it"),
        ("writer = ['a,b']", "1: `writer` is \"a,b\"; expected text, or a list of it"),
        ("colour = 'blue'", "1: `colour` is \"blue\"; expected one of red, green"),
        ("colour = 2020-01-01", "1: `colour` is a date; expected one of red, green"),
        ("[[colour]]\na = 1", "1: `colour` is a list; expected one of red, green"),
    ];
    for (text, why) in wrong {
        assert_eq!(refusal(text, &[]), why);
    }
    let why = refusal("writer-queue-bytes-max = -1", &[]);
    assert!(
        why.starts_with("1: `writer-queue-bytes-max` is -1; expected a whole number ("),
        "{why}"
    );
    let why = refusal("\nwriter-batches-max = 11", &[]);
    assert!(why.starts_with("2: `writer-batches-max` is 11") && why.contains("1..=10"), "{why}");
}

#[test]
fn what_is_no_toml_and_what_is_set_twice_is_refused_with_its_line() {
    assert!(refusal("store = 's'\ncolour = \n", &[]).starts_with("2: "));
    assert_eq!(
        refusal("writer-batches-max = 1\n[writer]\nbatches-max = 2", &[]),
        "3: `writer-batches-max` is set again; it is in line 1 too"
    );
}

#[test]
fn settings_that_exclude_each_other_do_so_in_a_file_and_give_way_to_a_flag() {
    let both = "store = 's'\nstore-key-file = 'k'\nstore-key-command = 'c'";
    assert!(refusal(both, &[]).contains("cannot be set together with `store-key-file`"));

    let it = read("store = 's'\nstore-key-file = 'k'", &["--store-key-command", "c"]).arguments;
    assert_eq!((it.keys.store_key_file, it.keys.store_key_command.as_deref()), (None, Some("c")));
}

#[test]
fn a_missing_file_is_named() {
    let line = ["headwater", "--store", "s", "--config", "/nowhere/settings.toml"];
    let line = line.map(OsString::from).to_vec();
    let error = load(Arguments::command(), line, None).unwrap_err().to_string();

    assert!(error.contains("/nowhere/settings.toml"), "{error}");
}

#[test]
fn every_setting_is_shown_with_its_source_and_secrets_are_not() {
    let file = "store = 's'\nstore-key-command = 'print the-secret'\nwriter = ['a:1', 'b:2']";
    let it = read(file, &["--writer-batches-max", "9"]);
    let json = as_json(&it.loaded.shown);

    let one = |name: &str| {
        json.as_array().unwrap().iter().find(|it| it["name"] == name).cloned().unwrap()
    };
    assert_eq!(one("writer-batches-max")["value"], 9);
    assert_eq!(one("writer-batches-max")["source"], "flag");
    assert_eq!(one("writer")["value"], serde_json::json!(["a:1", "b:2"]));
    assert!(one("writer")["place"].as_str().unwrap().ends_with(":3"));
    assert_eq!(
        (&one("path")["source"], &one("path")["place"]),
        (&"variable".into(), &"PATH".into())
    );
    assert_eq!((&one("log")["value"], &one("log")["source"]), (&().into(), &"default".into()));
    assert_eq!(one("trust-store")["value"], false);
    assert_eq!(one("store-key-command")["hidden"], true);
    let text = as_text(&it.loaded.shown);
    assert!(text.contains("# store-key-command is set, and hidden"), "{text}");
    assert!(!text.contains("the-secret") && !json.to_string().contains("the-secret"));
    // What is shown is a file that gives the same.
    let again = read(&text, &[]).arguments;
    assert_eq!((again.writer, again.writer_batches_max), (vec!["a:1".into(), "b:2".into()], 9));
}

#[test]
fn a_secret_is_in_no_refusal() {
    let why = refusal("store = 's'\nstore-key-command = ['the-secret']", &[]);

    assert!(!why.contains("the-secret") && why.contains("store-key-command"), "{why}");
}

#[test]
fn the_level_of_logs_is_read_again_where_the_file_says_it() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let origin = Origin { file: Some(file.path().to_owned()), is_log_given: false };
    let write = |text: &str| std::fs::write(file.path(), text).unwrap();

    write("log = 'debug'\n");
    assert_eq!(log_of_file(&origin).unwrap().as_deref(), Some("debug"));
    write("other = 1\n");
    assert_eq!(log_of_file(&origin).unwrap(), None);
    write("log = 3\n");
    assert!(log_of_file(&origin).is_err());
    assert_eq!(log_of_file(&Origin::default()).unwrap(), None);
}
