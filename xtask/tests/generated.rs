//! What is generated is what is committed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use xtask::codegen;

#[test]
fn the_committed_code_is_what_the_contract_generates() {
    let fresh = tempfile::tempdir().unwrap();
    codegen::generate(fresh.path()).unwrap();

    let (fresh, committed) = (files(fresh.path()), files(&codegen::generated_dir()));

    assert_eq!(fresh.keys().collect::<Vec<_>>(), committed.keys().collect::<Vec<_>>());
    for (name, bytes) in fresh {
        assert!(bytes == committed[&name], "{name} is old: cargo run -p xtask -- codegen");
    }
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(dir).unwrap().map(read).collect()
}
