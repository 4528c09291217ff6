//! What stores charge.

use std::path::Path;

use serde::Deserialize;

use crate::failed::Failed;

/// Tables that come with the program. Each says where its figures are from, for
/// which region, and of when; prices change, and `--prices` takes newer ones.
pub(super) const BUILT_IN: &str = include_str!("prices.json");

/// One store's prices, in US dollars, and how it behaves. Traffic within the
/// region; traffic out of it is not in here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Prices {
    pub(crate) name: String,
    pub(crate) region: String,
    /// Where the figures are from.
    pub(crate) source: String,
    /// Year and month in which they were looked up.
    pub(crate) as_of: String,
    /// For 1,000 of PUT, COPY, POST and LIST.
    pub(crate) put_per1000: f64,
    /// For 1,000 of GET, conditional ones included.
    pub(crate) get_per1000: f64,
    pub(crate) delete_per1000: f64,
    pub(crate) stored_gb_month: f64,
    pub(crate) up_gb: f64,
    pub(crate) down_gb: f64,
    /// What a small write takes, in milliseconds, as a rule. Not a promise of
    /// the store: it decides how large batches are.
    pub(crate) write_ms: u64,
    /// What a small read takes.
    pub(crate) read_ms: u64,
    /// The rest of one head between replacements; 0 for none.
    pub(crate) head_interval_ms: u64,
}

/// The tables of a file, or those that come with the program.
pub(crate) fn tables(file: Option<&Path>) -> Result<Vec<Prices>, Failed> {
    let text = match file {
        None => BUILT_IN.to_owned(),
        Some(path) => {
            std::fs::read_to_string(path).map_err(|error| Failed::file("read", path, &error))?
        }
    };
    let refused = |what: String| {
        let name = file.map_or("the built-in prices".into(), |it| it.display().to_string());
        Failed::usage(format!("{name}: {what}"))
    };
    let tables: Vec<Prices> =
        serde_json::from_str(&text).map_err(|error| refused(error.to_string()))?;
    for it in &tables {
        let prices = [
            it.put_per1000,
            it.get_per1000,
            it.delete_per1000,
            it.stored_gb_month,
            it.up_gb,
            it.down_gb,
        ];
        if prices.iter().any(|it| !it.is_finite() || *it < 0.0) {
            return Err(refused(format!("a price of `{}` is negative", it.name)));
        }
        if it.write_ms == 0 || it.read_ms == 0 {
            return Err(refused(format!("`{}`: writeMs and readMs are at least 1", it.name)));
        }
    }
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_that_come_along_are_whole() {
        let tables = tables(None).unwrap();
        let names: Vec<_> = tables.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["s3-standard", "s3-express", "gcs-standard", "azure-hot"]);
        for it in tables {
            assert!(it.source.starts_with("https://") && !it.region.is_empty(), "{}", it.name);
            assert_eq!(it.as_of.len(), "2026-05".len());
        }
    }

    #[test]
    fn a_file_with_a_slip_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.json");
        let message = |text: &str| {
            std::fs::write(&path, text).unwrap();
            tables(Some(&path)).unwrap_err().to_text()
        };
        assert!(message(&BUILT_IN.replacen("upGb", "upGB", 1)).contains("upGB"));
        assert!(message(&BUILT_IN.replacen("0.023", "-0.023", 1)).contains("s3-standard"));
        assert!(
            message(&BUILT_IN.replacen("\"writeMs\": 40", "\"writeMs\": 0", 1)).contains("writeMs")
        );
        assert!(message("{}").contains("prices.json"));
    }
}
