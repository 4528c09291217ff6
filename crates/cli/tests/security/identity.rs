//! Certificates and tokens, shown by the client that users have.

use headwater_client::{
    Consistency, Determinacy, HistoryError, Outcome, ReadError, Reason, SubmitError,
};
use headwater_daemon::auth::Role;

use crate::fixture::{Files, Server, Setup, authority, row, token};

const BOTH: Setup = Setup {
    has_rights: true,
    has_tls: true,
    asks_clients: false,
    limits: crate::fixture::LIMITS,
    server: crate::fixture::SERVER,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_a_token_over_tls_does_what_it_may_and_no_more() {
    let (files, ca) = (Files::new(), authority());
    files.issue("server", &ca, "localhost");
    files.write("ca.pem", &ca.pem());
    let (admin, reader) = (token(), token());
    let rights = row(&admin, "ops", Role::Admin, "app-") + &row(&reader, "app", Role::Read, "app-");
    files.write("rights.toml", &rights);
    files.write("admin", &admin.text);
    files.write("reader", &reader.text);
    let server = Server::start(&files, BOTH).await;
    let as_of = |name: &str| {
        let client = server.client(true).tls_authorities(files.path("ca.pem"));
        client.token_file(files.path(name)).build().unwrap()
    };
    let ops = as_of("admin");
    ops.create_history("app-1", false).await.unwrap();
    let session = ops.session("app-1");
    let put = session.submit(ops.operation().put("k", "v")).await.unwrap();
    assert!(matches!(put, Outcome::Accepted(_)));

    let app = as_of("reader");
    let read = app.session("app-1").get("k", Consistency::Strong).await.unwrap();
    assert_eq!(read.value.unwrap().value, "v");

    let written = app.session("app-1").submit(app.operation().put("k", "w")).await.unwrap_err();
    let SubmitError::Refused(refused) = written else { panic!("{written}") };
    assert_eq!(refused.reason, Reason::PermissionDenied);
    assert_eq!(refused.determinacy, Determinacy::NotApplied);
    let outside = app.session("other").get("k", Consistency::Strong).await.unwrap_err();
    let ReadError::Refused(refused) = outside else { panic!("{outside}") };
    assert_eq!(refused.reason, Reason::PermissionDenied);
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_authority_is_an_error_that_has_sent_nothing() {
    let (files, ca) = (Files::new(), authority());
    files.issue("server", &ca, "localhost");
    files.write("ca.pem", &authority().pem());
    let token = token();
    files.write("rights.toml", &row(&token, "t", Role::Admin, ""));
    files.write("token", &token.text);
    let server = Server::start(&files, BOTH).await;
    let client = server.client(true).deadline(std::time::Duration::from_secs(1));
    let client = client.tls_authorities(files.path("ca.pem")).token_file(files.path("token"));
    let client = client.build().unwrap();

    let error = client.create_history("h", false).await.unwrap_err();
    assert_eq!(error.determinacy(), Determinacy::NotApplied, "{error}");
    // And one that speaks no TLS at all gets nowhere either.
    let plain = server.client(false).deadline(std::time::Duration::from_secs(1)).build().unwrap();
    assert!(plain.create_history("h", false).await.is_err());
    server.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_certificates_are_asked_for_only_who_has_one_is_served() {
    let (files, ca, clients) = (Files::new(), authority(), authority());
    files.issue("server", &ca, "localhost");
    files.write("ca.pem", &ca.pem());
    files.write("clients.pem", &clients.pem());
    files.issue("fleet", &clients, "fleet.example");
    files.issue("stranger", &clients, "stranger.example");
    files.issue("wrong", &ca, "fleet.example");
    files.write(
        "rights.toml",
        "[[certificate]]\nname = \"fleet\"\nsubjects = [\"fleet.example\"]\n\
         grants = [{ role = \"admin\", histories = [\"\"] }]\n",
    );
    let server = Server::start(&files, Setup { asks_clients: true, ..BOTH }).await;
    let create = |identity: Option<&str>| {
        let mut client = server.client(true).tls_authorities(files.path("ca.pem"));
        if let Some(name) = identity {
            let file = |kind| files.path(&format!("{name}.{kind}"));
            client = client.tls_identity(file("crt"), file("key"));
        }
        let client = client.deadline(std::time::Duration::from_secs(2)).build().unwrap();
        async move { client.create_history("h", false).await }
    };

    create(Some("fleet")).await.unwrap();
    // Known to the authority, and without rights.
    let refused = create(Some("stranger")).await.unwrap_err();
    let HistoryError::Refused(refused) = refused else { panic!("{refused}") };
    assert_eq!(refused.reason, Reason::Unauthenticated);
    // Not let in at all: told before anything was sent.
    for identity in [None, Some("wrong")] {
        let refused = create(identity).await.unwrap_err();
        assert_eq!(refused.determinacy(), Determinacy::NotApplied, "{identity:?}: {refused}");
    }
    server.end().await;
}
