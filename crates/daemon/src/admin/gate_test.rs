use headwater_store::{Clock, Entropy};
use http::header::AUTHORIZATION as HEADER;

use super::*;
use crate::auth::token::NewToken;

const LOOKS: [&str; 4] = ["/metrics", "/loglevel", "/status.json", "/"];

struct World {
    authenticator: Authenticator,
    tokens: Vec<(&'static str, NewToken)>,
    _file: tempfile::NamedTempFile,
}

impl World {
    async fn new() -> Self {
        let kinds = [
            ("nothing", None),
            ("narrow", Some(("admin", "app-"))),
            ("read", Some(("read", ""))),
            ("admin", Some(("admin", ""))),
        ];
        let (mut rights, mut tokens) = (String::new(), Vec::new());
        for (seed, (name, grant)) in kinds.into_iter().enumerate() {
            let token = NewToken::draw(&Entropy::from_seed(seed as u64));
            let grants = grant.map_or(String::new(), |(role, prefix)| {
                format!("{{ role = \"{role}\", histories = [\"{prefix}\"] }}")
            });
            let (id, hash) = (&token.id, token.hash.to_text());
            let row = format!(
                "[[token]]\nname = \"{name}\"\nid = \"{id}\"\nhash = \"{hash}\"\ngrants = [{grants}]\n"
            );
            rights += &row;
            tokens.push((name, token));
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), rights).unwrap();
        let clock = Clock::virtual_from(1_800_000_000_000);
        let authenticator = Authenticator::load(file.path().to_owned(), clock).await.unwrap();
        Self { authenticator, tokens, _file: file }
    }

    fn gate(&self, is_open: bool) -> Gate {
        Gate::new(Proof::Rights(self.authenticator.clone()), is_open)
    }

    /// 200 where it is let through.
    fn asked(&self, gate: &Gate, method: Method, path: &str, token: Option<&str>) -> u16 {
        let mut request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
        if let Some(name) = token {
            let (_, token) = self.tokens.iter().find(|it| it.0 == name).unwrap();
            let value = format!("Bearer {}", token.text).parse().unwrap();
            request.headers_mut().insert(HEADER, value);
        }
        let checked = gate.check(&mut request);
        assert!(!request.headers().contains_key(HEADER), "the token goes no further");
        checked.map_or_else(|refused| refused.status().as_u16(), |()| 200)
    }
}

#[tokio::test]
async fn with_rights_only_probes_are_for_anybody() {
    let world = World::new().await;
    let gate = world.gate(false);
    let asked = |method, path, token| world.asked(&gate, method, path, token);
    for probe in ["/livez", "/readyz"] {
        assert_eq!(asked(Method::GET, probe, None), 200);
    }
    for path in LOOKS {
        assert_eq!(asked(Method::GET, path, None), 401, "{path}");
        assert_eq!(asked(Method::GET, path, Some("read")), 200, "{path}");
    }
    // Who scrapes needs no right to any history.
    assert_eq!(asked(Method::GET, "/metrics", Some("nothing")), 200);
    for less in ["nothing", "narrow"] {
        assert_eq!(asked(Method::GET, "/status.json", Some(less)), 403);
        assert_eq!(asked(Method::GET, "/", Some(less)), 403);
    }
    for less in ["nothing", "narrow", "read"] {
        assert_eq!(asked(Method::POST, "/loglevel", Some(less)), 403, "{less}");
    }
    assert_eq!(asked(Method::POST, "/loglevel", None), 401);
    assert_eq!(asked(Method::PUT, "/anything", Some("read")), 403, "whatever is no looking");
    assert_eq!(asked(Method::POST, "/loglevel", Some("admin")), 200);
}

#[tokio::test]
async fn a_port_that_is_open_on_purpose_is_open_for_looking_alone() {
    let world = World::new().await;
    let gate = world.gate(true);
    for path in LOOKS {
        assert_eq!(world.asked(&gate, Method::GET, path, None), 200, "{path}");
    }
    assert_eq!(world.asked(&gate, Method::POST, "/loglevel", None), 401);
    assert_eq!(world.asked(&gate, Method::POST, "/loglevel", Some("read")), 403);
    assert_eq!(world.asked(&gate, Method::POST, "/loglevel", Some("admin")), 200);
}

#[test]
fn without_a_file_of_rights_a_certificate_is_the_right() {
    let gate = Gate::new(Proof::Certificate, false);
    let asked = |path: &str, names: Option<&[&str]>| {
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        let client_names = names.map(|it| it.iter().map(ToString::to_string).collect());
        request.extensions_mut().insert(Peer { client_names });
        gate.check(&mut request).map_or_else(|refused| refused.status().as_u16(), |()| 200)
    };
    for path in LOOKS {
        assert_eq!(asked(path, None), 401, "{path}");
        assert_eq!(asked(path, Some(&["ops.example"])), 200, "{path}");
    }
    assert_eq!(asked("/livez", None), 200);
}

#[test]
fn where_nobody_proves_anything_everybody_may() {
    let gate = Gate::new(Proof::Nothing, false);
    let mut request = Request::post("/loglevel").body(Body::empty()).unwrap();
    assert!(gate.check(&mut request).is_ok());
}
