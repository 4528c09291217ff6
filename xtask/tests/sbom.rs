//! The bill of materials against what cargo says by another way.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::collections::BTreeSet;
use std::process::Command;

use xtask::codegen::repository_root;
use xtask::sbom;

#[test]
fn the_bill_names_every_package_of_the_programs() {
    let bill = sbom::generate(&repository_root()).unwrap();
    let components = bill["components"].as_array().unwrap();
    let text = |it: &serde_json::Value, field: &str| it[field].as_str().unwrap().to_owned();
    let named: BTreeSet<_> =
        components.iter().map(|it| (text(it, "name"), text(it, "version"))).collect();

    let mut command = Command::new("cargo");
    command.current_dir(repository_root()).args(["tree", "--locked", "--prefix=none"]);
    command.args(["--edges=normal,build", "--format={p}", "--target", &sbom::host().unwrap()]);
    for program in sbom::PROGRAMS {
        command.args(["-p", program]);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let listed: BTreeSet<_> = tree
        .lines()
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name.to_owned(), rest.split(' ').next().unwrap().to_owned()))
        .collect();

    assert!(listed.len() > 100, "cargo tree lists {}", listed.len());
    let missing: Vec<_> = listed.difference(&named).collect();
    assert!(missing.is_empty(), "missing {missing:?}");
    // What only tests use themselves is not shipped.
    assert!(!named.iter().any(|it| it.0 == "proptest" || it.0 == "criterion"));
}

#[test]
fn every_component_can_be_looked_up() {
    let bill = sbom::generate(&repository_root()).unwrap();
    for it in bill["components"].as_array().unwrap() {
        let is_ours = it["bom-ref"].as_str().unwrap().starts_with("workspace:");
        assert!(it["licenses"].is_array(), "no license: {it}");
        assert!(is_ours || (it["purl"].is_string() && it["hashes"].is_array()), "{it}");
    }
}
