//! What stores charge: for `headwater cost`, and for the estimate that every
//! process makes of its own requests.

use std::path::{Path, PathBuf};
use std::{fs, io};

use headwater_store::Readings;
use serde::Deserialize;

/// Bytes of what stores count as a GB.
pub const GB: f64 = 1_073_741_824.0;

/// Tables that come with the program. Each says where its figures are from, for
/// which region, and of when; prices change, and `--prices` takes newer ones.
pub const BUILT_IN: &str = include_str!("prices.json");

/// One store's prices, in US dollars, and how it behaves. Traffic within the
/// region; traffic out of it is not in here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Prices {
    /// What it is asked for by.
    pub name: String,
    /// The region.
    pub region: String,
    /// Where the figures are from.
    pub source: String,
    /// Year and month in which they were looked up.
    pub as_of: String,
    /// For 1,000 of PUT, COPY, POST and LIST.
    pub put_per1000: f64,
    /// For 1,000 of GET, conditional ones included.
    pub get_per1000: f64,
    /// For 1,000 of DELETE.
    pub delete_per1000: f64,
    /// For a GB kept for a month.
    pub stored_gb_month: f64,
    /// For a GB written.
    pub up_gb: f64,
    /// For a GB read.
    pub down_gb: f64,
    /// What a small write takes, in milliseconds, as a rule. Not a promise of
    /// the store: it decides how large batches are.
    pub write_ms: u64,
    /// What a small read takes.
    pub read_ms: u64,
    /// The rest of one head between replacements; 0 for none.
    pub head_interval_ms: u64,
}

/// Why there are no prices.
#[derive(Debug, thiserror::Error)]
pub enum PricesError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A table breaks a rule.
    #[error("{of}: {what}")]
    Table {
        /// The file, or what came along.
        of: String,
        /// The rule, and what was found.
        what: String,
    },
    /// There is no table of this name.
    #[error("there are no prices of `{name}`: there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
}

impl Prices {
    /// What the requests and bytes of `readings` cost, in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn cost(&self, readings: &Readings) -> f64 {
        let requests = readings.requests();
        let thousands = |it: u64| it as f64 / 1_000.0;
        thousands(requests.puts) * self.put_per1000
            + thousands(requests.gets) * self.get_per1000
            + thousands(requests.deletes) * self.delete_per1000
            + readings.bytes_up() as f64 / GB * self.up_gb
            + readings.bytes_down() as f64 / GB * self.down_gb
    }
}

/// The table that the requests to the store behind `url` are estimated by: the
/// one of this name, or the one that fits the URL. `None`: no estimate.
///
/// # Errors
///
/// [`PricesError::Unknown`].
pub fn of_store(url: &str, name: Option<&str>) -> Result<Option<Prices>, PricesError> {
    let fitting = match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
        // Directory buckets have this in their names.
        "s3" if url.contains("--x-s3") => "s3-express",
        "s3" => "s3-standard",
        "gs" => "gcs-standard",
        "az" => "azure-hot",
        _ => "none",
    };
    let name = name.unwrap_or(fitting);
    if name == "none" {
        return Ok(None);
    }
    let tables = tables(None)?;
    let known = tables.iter().map(|it| &*it.name).collect::<Vec<_>>().join(", ");
    let found = tables.into_iter().find(|it| it.name == name);
    found.map(Some).ok_or_else(|| PricesError::Unknown { name: name.to_owned(), known })
}

/// The tables of a file, or those that come with the program.
///
/// # Errors
///
/// [`PricesError`].
pub fn tables(file: Option<&Path>) -> Result<Vec<Prices>, PricesError> {
    let text = match file {
        None => BUILT_IN.to_owned(),
        Some(path) => fs::read_to_string(path)
            .map_err(|source| PricesError::File { path: path.into(), source })?,
    };
    let refused = |what: String| {
        let of = file.map_or("the built-in prices".into(), |it| it.display().to_string());
        PricesError::Table { of, what }
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
            fs::write(&path, text).unwrap();
            tables(Some(&path)).unwrap_err().to_string()
        };
        assert!(message(&BUILT_IN.replacen("upGb", "upGB", 1)).contains("upGB"));
        assert!(message(&BUILT_IN.replacen("0.023", "-0.023", 1)).contains("s3-standard"));
        assert!(
            message(&BUILT_IN.replacen("\"writeMs\": 40", "\"writeMs\": 0", 1)).contains("writeMs")
        );
        assert!(message("{}").contains("prices.json"));
    }

    #[test]
    fn a_store_has_the_prices_of_its_kind() {
        let name_of = |url: &str, name| of_store(url, name).unwrap().map(|it| it.name);
        assert_eq!(name_of("s3://bucket/prefix", None).as_deref(), Some("s3-standard"));
        assert_eq!(name_of("s3://a--use1-az4--x-s3", None).as_deref(), Some("s3-express"));
        assert_eq!(name_of("gs://bucket", None).as_deref(), Some("gcs-standard"));
        assert_eq!(name_of("memory:", None), None);
        assert_eq!(name_of("memory:", Some("s3-standard")).as_deref(), Some("s3-standard"));
        assert_eq!(name_of("s3://bucket", Some("none")), None);
        let error = of_store("s3://bucket", Some("s3")).unwrap_err();
        assert!(error.to_string().contains("s3-standard, s3-express"), "{error}");
    }
}
