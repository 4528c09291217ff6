//! What no compiler checks: who may use whom, how long a file may get, and what
//! may not be left lying about.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use xtask::codegen::repository_root;

/// What a crate may use of the workspace.
struct Allowed {
    name: &'static str,
    uses: &'static [&'static str],
    /// In tests, besides.
    tests_use: &'static [&'static str],
}

/// Every crate that may not use everything. A new edge is a design decision, so
/// it is made here, in a diff that a reviewer sees.
const ALLOWED: &[Allowed] = &[
    Allowed { name: "headwater-core", uses: &[], tests_use: &[] },
    // The same files with faults that rigs can plant. Only rigs may use it.
    Allowed { name: "headwater-core-rig", uses: &[], tests_use: &[] },
    Allowed { name: "headwater-model", uses: &["headwater-core-rig"], tests_use: &[] },
    Allowed {
        name: "headwater-store",
        uses: &["headwater-core"],
        tests_use: &["headwater-s3-double"],
    },
    Allowed {
        name: "headwater-state",
        uses: &["headwater-core", "headwater-store"],
        tests_use: &["headwater-s3-double"],
    },
    Allowed {
        name: "headwater-verify",
        uses: &["headwater-core", "headwater-store", "headwater-state"],
        // Histories to be checked are made by a real writer.
        tests_use: &["headwater-writer"],
    },
    Allowed { name: "headwater-proto", uses: &[], tests_use: &[] },
    // Certificates and tokens, as both ends of a connection need them.
    Allowed { name: "headwater-tls", uses: &[], tests_use: &[] },
    Allowed {
        name: "headwater-daemon",
        uses: &["headwater-core", "headwater-store", "headwater-proto", "headwater-tls"],
        tests_use: &[],
    },
    Allowed { name: "headwater-writer", uses: SERVICE, tests_use: SERVICE_TESTS },
    Allowed { name: "headwater-replica", uses: SERVICE, tests_use: SERVICE_TESTS },
    Allowed {
        name: "headwater-client",
        uses: &["headwater-proto", "headwater-tls"],
        tests_use: &[],
    },
    Allowed { name: "headwater-s3-double", uses: &[], tests_use: &[] },
    Allowed { name: "xtask", uses: &[], tests_use: &[] },
];

/// Writers and replicas use the same, and never each other.
const SERVICE: &[&str] = &[
    "headwater-core",
    "headwater-store",
    "headwater-state",
    "headwater-proto",
    "headwater-tls",
    "headwater-daemon",
];
const SERVICE_TESTS: &[&str] = &["headwater-client", "headwater-s3-double"];

/// These put everything together.
const UNRESTRICTED: &[&str] = &["headwater-cli", "headwater-benches", "headwater-sim"];

/// Rigs: they may use packages in which faults can be planted.
const RIGS: &[&str] = &["headwater-model"];

/// Longest file, in lines. Past this a file has more than one subject.
const FILE_LINES_MAX: usize = 600;

/// Marks of unfinished work. In two parts, so that this file has none.
const UNFINISHED: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!("), concat!("#[ig", "nore")];

/// Paths of one machine. In two parts, so that this file has none.
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];

#[test]
fn crates_depend_only_downwards() {
    let metadata = cargo_metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let name_of = |it: &serde_json::Value| it["name"].as_str().unwrap().to_owned();
    let ours: Vec<String> = packages.iter().map(name_of).collect();
    let allowed: BTreeMap<_, _> = ALLOWED.iter().map(|it| (it.name, it)).collect();
    for package in packages {
        let name = name_of(package);
        if UNRESTRICTED.contains(&name.as_str()) {
            continue;
        }
        let allowed = allowed
            .get(name.as_str())
            .unwrap_or_else(|| panic!("{name} is neither in ALLOWED nor in UNRESTRICTED"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = name_of(dependency);
            let is_for_tests = dependency["kind"] == "dev";
            let may = !ours.contains(&used)
                || allowed.uses.contains(&used.as_str())
                || (is_for_tests && allowed.tests_use.contains(&used.as_str()));
            assert!(may, "{name} may not depend on {used}");
        }
    }
}

#[test]
fn nothing_that_ships_can_have_a_planted_fault() {
    let metadata = cargo_metadata();
    let name_of = |it: &serde_json::Value| it["name"].as_str().unwrap().to_owned();
    for package in metadata["packages"].as_array().unwrap() {
        let name = name_of(package);
        let is_rig = RIGS.contains(&name.as_str()) || name.ends_with("-rig");
        let features = package["features"].as_object().unwrap();
        let defaults = features.get("default").and_then(|it| it.as_array());
        assert!(is_rig || defaults.is_none_or(|it| !it.contains(&"planted".into())), "{name}");
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = name_of(dependency);
            let is_planted = dependency["features"].as_array().unwrap().contains(&"planted".into());
            assert!(!is_planted, "{name} switches faults on in {used}");
            assert!(is_rig || !used.ends_with("-rig"), "{name} ships, and uses {used}");
        }
        // The drivers' faults come by a feature that a command asks for: what
        // ships does not compile with it.
        let ships = ["headwater-cli", "headwater-writer", "headwater-replica"];
        if ships.contains(&name.as_str()) {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let main = fs::read_to_string(manifest.with_file_name("src/main.rs")).unwrap();
            assert!(main.contains("headwater_store::refuse_planted!();"), "{name}");
        }
    }
}

#[test]
fn every_file_has_one_subject() {
    for (path, text) in text_files() {
        let is_rust = path.extension().is_some_and(|it| it == "rs");
        if !is_rust || is_generated(&path) {
            continue;
        }
        let n_lines = text.lines().count();
        assert!(n_lines <= FILE_LINES_MAX, "{}: {n_lines} lines", path.display());
        let is_module_root = path.ends_with("lib.rs") || path.ends_with("mod.rs");
        assert!(
            !is_module_root || text.starts_with("//!"),
            "{}: say what the module is for",
            path.display()
        );
    }
}

#[test]
fn nothing_is_left_unfinished() {
    for (path, text) in text_files() {
        for (i, line) in text.lines().enumerate() {
            let found = UNFINISHED.iter().find(|it| line.contains(**it));
            assert!(found.is_none(), "{}:{}: {}", path.display(), i + 1, found.unwrap());
        }
    }
}

#[test]
fn nothing_names_a_path_of_one_machine() {
    for (path, text) in text_files() {
        for (i, line) in text.lines().enumerate() {
            let found = MACHINE_PATHS.iter().find(|it| line.contains(**it));
            assert!(found.is_none(), "{}:{}: {}", path.display(), i + 1, found.unwrap());
        }
    }
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut broken = Vec::new();
    for (path, text) in text_files() {
        if path.extension().is_none_or(|it| it != "md") {
            continue;
        }
        for target in link_targets(&text) {
            let file = target.split('#').next().unwrap_or_default();
            let is_elsewhere = file.contains("://") || file.starts_with("mailto:");
            let at = repository_root().join(path.parent().unwrap()).join(file);
            if !file.is_empty() && !is_elsewhere && !at.exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn link_targets_are_found_outside_of_code() {
    let page = "[a](b.md) and [c](<d e.md>)\n```\n[x](y.md)\n```\n`[i](j.md)` [k](l.md#m \"n\")";

    assert_eq!(link_targets(page), ["b.md", "d e.md", "l.md#m"]);
}

/// The targets of inline links in a page of Markdown.
fn link_targets(page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut targets = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        // Every second piece between backticks is code.
        for prose in line.split('`').step_by(2) {
            for rest in prose.split("](").skip(1) {
                let target = match rest.strip_prefix('<') {
                    Some(quoted) => quoted.split('>').next(),
                    None => rest.split([')', ' ']).next(),
                };
                targets.extend(target.map(str::to_owned));
            }
        }
    }
    targets
}

fn cargo_metadata() -> serde_json::Value {
    let output = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(repository_root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn is_generated(path: &Path) -> bool {
    path.iter().any(|it| it == "generated")
}

/// Every file of the repository that is text, by its path from the root.
fn text_files() -> Vec<(PathBuf, String)> {
    let root = repository_root();
    let paths = files_known_to_git().unwrap_or_else(|| files_below(&root));
    assert!(paths.len() > 50, "the files of the repository were not found");
    let read = |path: PathBuf| Some((path.clone(), fs::read_to_string(root.join(path)).ok()?));
    paths.into_iter().filter_map(read).collect()
}

/// Committed files and those that a commit would add. None without git, as in an
/// unpacked archive.
fn files_known_to_git() -> Option<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository_root())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(text.split('\0').filter(|it| !it.is_empty()).map(PathBuf::from).collect())
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            if !path.is_dir() {
                files.push(path.strip_prefix(root).unwrap().to_owned());
            } else if name != "target" && name != ".git" {
                folders.push(path);
            }
        }
    }
    files
}
