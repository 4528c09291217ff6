//! The bill of materials of the programs that ship: every package that is
//! compiled into them or runs while they are built, as `CycloneDX` 1.5 in JSON.
//!
//! In here: what `cargo metadata` resolves for this host, with the checksums of
//! `Cargo.lock`. It knows of features for the workspace as a whole, so a package
//! that only a test switches on below another one is listed too: rather one too
//! many. Not in here: what tests and benches use themselves, and the C sources
//! inside of packages, which are theirs to list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// The packages of the image's programs.
pub const PROGRAMS: &[&str] = &["headwater-cli", "headwater-writer", "headwater-replica"];

/// Why there is no bill.
#[derive(Debug, thiserror::Error)]
pub enum SbomError {
    /// `cargo metadata`, or `rustc` for the name of this host.
    #[error("{what} could not be run")]
    Run {
        /// The command.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ran, and did not answer as it should.
    #[error("{what} did not answer as expected: {said}")]
    Answer {
        /// The command or the file.
        what: &'static str,
        /// What is wrong.
        said: String,
    },
}

fn odd(what: &'static str, said: impl fmt::Display) -> SbomError {
    SbomError::Answer { what, said: format!("{said}") }
}

/// The triple of this host, for which the programs are resolved.
///
/// # Errors
///
/// [`SbomError`] where `rustc` is missing or does not say.
pub fn host() -> Result<String, SbomError> {
    let said = run("rustc -vV", Command::new("rustc").arg("-vV"))?;
    let line = said.lines().find_map(|it| it.strip_prefix("host: "));
    line.map(str::to_owned).ok_or_else(|| odd("rustc -vV", "no host"))
}

fn run(what: &'static str, command: &mut Command) -> Result<String, SbomError> {
    let output = command.output().map_err(|source| SbomError::Run { what, source })?;
    if !output.status.success() {
        return Err(odd(what, String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|error| odd(what, error))
}

/// The bill of the workspace in `root`.
///
/// # Errors
///
/// [`SbomError`] where cargo does not resolve the workspace.
pub fn generate(root: &Path) -> Result<Value, SbomError> {
    const METADATA: &str = "cargo metadata";
    let host = host()?;
    let arguments = ["metadata", "--format-version=1", "--locked", "--filter-platform", &host];
    let said = run(METADATA, Command::new("cargo").args(arguments).current_dir(root))?;
    let metadata: Value = serde_json::from_str(&said).map_err(|error| odd(METADATA, error))?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|it| (text(&it["id"]), it)).collect();
    let edges: BTreeMap<String, Vec<String>> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (text(&node["id"]), shipped_dependencies(node)))
        .collect();
    let is_program =
        |it: &Value| it["source"].is_null() && PROGRAMS.contains(&text(&it["name"]).as_str());
    let roots: Vec<&String> =
        packages.iter().filter(|it| is_program(it.1)).map(|it| it.0).collect();
    if roots.len() != PROGRAMS.len() {
        return Err(odd(METADATA, "not all programs are packages of the workspace"));
    }
    let reached = reach(roots, &edges);
    let checksums = checksums(root)?;
    let components: Vec<Value> =
        reached.iter().filter_map(|id| Some(component(packages.get(id)?, &checksums))).collect();
    let reference = |id: &String| packages.get(id).map(reference);
    let dependencies: Vec<Value> = reached
        .iter()
        .map(|id| {
            let uses: BTreeSet<_> = edges.get(id).into_iter().flatten().map(reference).collect();
            json!({ "ref": reference(id), "dependsOn": uses })
        })
        .collect();
    let version = roots_version(&packages);
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": "headwater", "name": "headwater",
                "version": version,
            },
            "properties": [{ "name": "target", "value": host }],
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn roots_version(packages: &BTreeMap<String, Value>) -> Value {
    let program = packages.values().find(|it| it["name"] == PROGRAMS[0]);
    program.map_or(Value::Null, |it| it["version"].clone())
}

/// What a package needs to run or to be built, and not only to be tested.
fn shipped_dependencies(node: &Value) -> Vec<String> {
    let is_shipped = |it: &&Value| {
        let kinds = it["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|it| it["kind"] != "dev"))
    };
    let all = node["deps"].as_array().into_iter().flatten();
    all.filter(is_shipped).filter_map(|it| it["pkg"].as_str()).map(str::to_owned).collect()
}

fn reach<'a>(
    roots: impl IntoIterator<Item = &'a String>,
    edges: &'a BTreeMap<String, Vec<String>>,
) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = roots.into_iter().collect();
    while let Some(id) = next.pop() {
        if reached.insert(id.clone()) {
            next.extend(edges.get(id).into_iter().flatten());
        }
    }
    reached
}

/// Packages of the workspace have no purl: nobody can fetch them by one.
fn reference(package: &Value) -> String {
    let name = package["name"].as_str().unwrap_or_default();
    let version = package["version"].as_str().unwrap_or_default();
    let scheme = if package["source"].is_null() { "workspace:" } else { "pkg:cargo/" };
    format!("{scheme}{name}@{version}")
}

fn component(package: &Value, checksums: &BTreeMap<(String, String), String>) -> Value {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
    });
    if !package["source"].is_null() {
        component["purl"] = reference(package).into();
    }
    if let Some(license) = package["license"].as_str() {
        // The older way of cargo's to write "or".
        let expression = license.replace(" / ", " OR ").replace('/', " OR ");
        component["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(sum) = checksums.get(&(text("name"), text("version"))) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

/// By name and version, of what comes from a registry.
fn checksums(root: &Path) -> Result<BTreeMap<(String, String), String>, SbomError> {
    const LOCK: &str = "Cargo.lock";
    let text = std::fs::read_to_string(root.join(LOCK)).map_err(|error| odd(LOCK, error))?;
    let lock: toml::Table = text.parse().map_err(|error| odd(LOCK, error))?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let field = |it: &toml::Value, name: &str| it.get(name)?.as_str().map(str::to_owned);
    let sum = |it| Some(((field(it, "name")?, field(it, "version")?), field(it, "checksum")?));
    Ok(packages.into_iter().flatten().filter_map(sum).collect())
}
