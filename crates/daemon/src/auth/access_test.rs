use headwater_store::Entropy;

use super::*;
use crate::auth::Role;
use crate::auth::token::NewToken;

fn read(text: &str) -> Result<Access, AccessError> {
    let sources = Sources { access: text.as_bytes().to_vec(), keys: BTreeMap::new() };
    Access::of(Path::new("/etc/headwater/rights.toml"), &sources)
}

fn row(token: &NewToken, more: &str) -> String {
    let (id, hash) = (&token.id, token.hash.to_text());
    format!(
        "[[token]]\nname = \"t\"\nid = \"{id}\"\nhash = \"{hash}\"\n{more}\n\
         grants = [{{ role = \"write\", histories = [\"app-\"] }}]\n"
    )
}

fn bearer(text: &str) -> Shown {
    let header = http::HeaderValue::from_str(&format!("Bearer {text}")).unwrap();
    Shown { authorization: Some(header), certificate: None }
}

fn certificate(names: &[&str]) -> Shown {
    let names = names.iter().map(ToString::to_string).collect();
    Shown { authorization: None, certificate: Some(names) }
}

#[test]
fn a_token_is_known_until_it_expires() {
    let token = NewToken::draw(&Entropy::from_seed(1));
    let access = read(&row(&token, "expires = 1970-01-01T00:00:02Z")).unwrap();

    let known = access.authenticate(&bearer(&token.text), 1_999).unwrap();
    assert_eq!(&*known.name, "token t");
    assert_eq!(known.grants[0].role, Role::Write);
    assert_eq!(known.expires_at_ms, Some(2_000));
    assert_eq!(access.authenticate(&bearer(&token.text), 2_000), Err(Unknown::Expired));
}

#[test]
fn what_is_almost_a_token_is_none() {
    let token = NewToken::draw(&Entropy::from_seed(1));
    let other = NewToken::draw(&Entropy::from_seed(2));
    let access = read(&row(&token, "")).unwrap();
    let said = |text: &str| access.authenticate(&bearer(text), 0).unwrap_err();

    // The id is no secret: with another secret it proves nothing.
    let secret_of_other = other.text.rsplit('_').next().unwrap();
    let forged = format!("hwt_{}_{secret_of_other}", token.id);
    // An expired or wrong one tells no more than an unknown one.
    for text in [&other.text, &forged, &token.text[..token.text.len() - 1], "x", "a.b.c"] {
        assert_eq!(said(text), Unknown::Token, "{text}");
    }
    let shown = |text: &str| Shown {
        authorization: Some(http::HeaderValue::from_str(text).unwrap()),
        certificate: None,
    };
    let basic = shown(&format!("Basic {}", token.text));
    assert_eq!(access.authenticate(&basic, 0), Err(Unknown::NotBearer));
    assert_eq!(access.authenticate(&shown(&token.text), 0), Err(Unknown::NotBearer));
    assert_eq!(access.authenticate(&Shown::default(), 0), Err(Unknown::Nothing));
    assert!(access.authenticate(&shown(&format!("bearer {}", token.text)), 0).is_ok());
}

#[test]
fn a_certificate_has_rights_by_its_whole_name() {
    let access = read(
        "[[certificate]]\nname = \"fleet\"\nsubjects = [\"r.example\", \"spiffe://p/r\"]\n\
         grants = [{ role = \"read\", histories = [\"\"] }]",
    )
    .unwrap();

    for names in [&["r.example"][..], &["other", "spiffe://p/r"]] {
        assert_eq!(
            &*access.authenticate(&certificate(names), 0).unwrap().name,
            "certificate fleet"
        );
    }
    for names in [&[][..], &["r.example.org"], &["x.r.example"], &["R.EXAMPLE"]] {
        assert_eq!(access.authenticate(&certificate(names), 0), Err(Unknown::Nothing), "{names:?}");
    }
    // A token that is not known is not made up for by a certificate.
    let both = Shown { certificate: certificate(&["r.example"]).certificate, ..bearer("x") };
    assert_eq!(access.authenticate(&both, 0), Err(Unknown::Token));
}

#[test]
fn an_empty_file_lets_nobody_in() {
    let access = read("").unwrap();
    assert_eq!(access.authenticate(&bearer("x"), 0), Err(Unknown::Token));
    assert_eq!(access.authenticate(&certificate(&["a"]), 0), Err(Unknown::Nothing));
}

#[test]
fn a_mistake_is_named_and_its_text_is_not_shown() {
    let token = NewToken::draw(&Entropy::from_seed(1));
    let whole = row(&token, "");
    let secret = &token.text;
    for (text, names) in [
        (whole.replace(&token.hash.to_text(), secret), "token t: hash"),
        (whole.replace(&token.id, secret), "token t: id"),
        (whole.replace("name = \"t\"", &format!("name = \"{secret} \"")), "token: a name"),
        (whole.replace("role = \"write\"", &format!("role = \"{secret}\"")), "line 6"),
        (whole.replace("grants", &format!("{secret} = 1\ngrants")), "line 6"),
        (format!("{whole}{secret}\n"), "line 7"),
        (format!("{whole}{whole}"), "another token has this id"),
        (row(&token, "expires = 2027-01-31"), "expires is a moment"),
        (row(&token, "requests_per_second = 0"), "requests_per_second"),
        ("[[certificate]]\nname = \"c\"\nsubjects = []\ngrants = []".to_owned(), "subjects"),
    ] {
        let error = read(&text).unwrap_err();
        let said = crate::telemetry::with_causes(&error);
        assert!(said.contains(names), "{said} for {text}");
        assert!(!said.contains(&secret[25..]), "{said}");
    }
}
