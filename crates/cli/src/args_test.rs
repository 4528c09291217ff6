//! The command line.

use headwater_replica::ReplicaConfig;
use headwater_writer::WriterConfig;

use super::*;
use crate::serve::Place;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split(' '))
}

#[test]
fn the_definition_holds_together() {
    Cli::with_exit_codes().debug_assert();
}

#[test]
fn exit_codes_are_on_every_help_page() {
    let mut command = Cli::with_exit_codes();
    let first = command.render_long_help().to_string();
    assert!(first.contains(EXIT_CODES) && first.contains(ENVIRONMENT), "{first}");
    for command in command.get_subcommands_mut().filter(|it| it.get_name() != "help") {
        let help = command.render_long_help().to_string();
        assert!(help.contains("Exit codes"), "{}", command.get_name());
    }
}

#[test]
fn servers_default_to_where_serve_listens() {
    let cli = parse("headwater get h k").unwrap();
    assert_eq!(cli.connection.writers, [ADDRESS_DEFAULT]);
    assert_eq!(cli.connection.replicas, Vec::<String>::new());
    assert!(cli.connection.client().is_ok());
    let Command::Serve(serve) = parse("headwater serve").unwrap().command else { panic!() };
    assert_eq!(serve.listen.to_string(), ADDRESS_DEFAULT);
    assert_eq!(serve.place, Place::Directory("data".into()));
}

#[test]
fn serve_takes_the_settings_of_a_writer_and_of_a_replica() {
    let served = |line| {
        let cli = parse(line).unwrap();
        let Command::Serve(serve) = cli.command else { panic!("{line}") };
        (cli.connection, serve)
    };

    let (_, serve) = served("headwater serve");
    assert_eq!(serve.writer, WriterConfig::default());
    assert_eq!(serve.replica.0, ReplicaConfig::default());
    let (connection, serve) = served(
        "headwater serve --writer a:1 --writer-publisher-id me --writer-histories-max 3 \
         --replica-poll-ms 7 --replica-histories-max 5",
    );
    assert_eq!((&*serve.writer.publisher_id, serve.writer.histories_max), ("me", 3));
    let replica = ReplicaConfig { poll_ms: 7, histories_max: 5, ..ReplicaConfig::default() };
    assert_eq!(serve.replica.0, replica);
    // Where commands ask, and nothing that the replica listens to.
    assert_eq!(connection.writers, ["a:1"]);
}

#[test]
fn serve_keeps_histories_in_one_place() {
    let place = |line| {
        let Command::Serve(serve) = parse(line).unwrap().command else { panic!("{line}") };
        serve.place
    };

    assert_eq!(place("headwater serve --root a"), Place::Directory("a".into()));
    assert_eq!(place("headwater serve --store memory:"), Place::Store("memory:".to_owned()));
}

#[test]
fn global_options_stand_anywhere() {
    let line = "headwater get h k --json --writer a:1,b:2 --replica c:3 --deadline-seconds 5";
    let cli = parse(line).unwrap();

    assert!(cli.json);
    assert_eq!(cli.connection.writers, ["a:1", "b:2"]);
    assert_eq!(cli.connection.replicas, ["c:3"]);
    assert_eq!(cli.connection.deadline_seconds, 5);
}

#[test]
fn what_contradicts_itself_is_refused() {
    for line in [
        "headwater",
        "headwater get h",
        "headwater get h k --any --strong",
        "headwater get h k --exact 1 --at-least 2",
        "headwater get h k --raw --int",
        "headwater get h k --raw --json",
        "headwater put h k",
        "headwater put h k v --value-file f",
        "headwater put h k v --operation-id a/b",
        "headwater put h k v --service-kept --issued-from 1",
        "headwater put h k v --if-exists --if-absent",
        "headwater add h k one",
        "headwater scan h --prefix a --start b",
        "headwater log h --from 1 --last 2",
        "headwater op h",
        "headwater delete-history h",
        "headwater delete-history h --confirm abc",
        "headwater import h f --fresh --service-kept",
        "headwater import h f --settle-unknown --fresh",
        "headwater import h f --window 0",
        "headwater export h --resume",
        "headwater serve --root a --store memory:",
        "headwater get h k --deadline-seconds 0",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()), "{line}");
    }
}

#[test]
fn freshness_is_read() {
    let level = |line| {
        let Command::Get(args) = parse(line).unwrap().command else { panic!("{line}") };
        args.freshness.level()
    };

    assert_eq!(level("headwater get h k"), Consistency::Strong);
    assert_eq!(level("headwater get h k --strong"), Consistency::Strong);
    assert_eq!(level("headwater get h k --at-least 3"), Consistency::AtLeast(3));
    assert_eq!(level("headwater get h k --exact 3"), Consistency::Exact(3));
    assert_eq!(level("headwater get h k --any"), Consistency::Any);
    let five = Consistency::MaxStaleness(Duration::from_millis(5));
    assert_eq!(level("headwater get h k --max-staleness-ms 5"), five);
}

#[test]
fn numbers_may_be_negative() {
    let Command::Add(add) = parse("headwater add h k -5").unwrap().command else { panic!() };
    assert_eq!(add.delta, -5);
}
