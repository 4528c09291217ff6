//! The flags of `verify`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use headwater_daemon::keys::KeyOptions;
use headwater_verify::{Budget, Options};

use crate::serve::Place;

/// `verify`
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
#[derive(Clone, Debug, Args)]
pub struct VerifyArgs {
    /// The history's name.
    #[arg(required_unless_present_any = ["all", "cache_dir"])]
    pub history: Option<String>,
    /// Check every history below the root.
    #[arg(long, conflicts_with = "history")]
    pub all: bool,
    /// Where histories are kept.
    #[command(flatten)]
    pub place: Place,
    /// The keys that the store's objects are sealed with.
    #[command(flatten)]
    pub keys: KeyOptions,
    /// Read at most so many objects, and say what was left out.
    #[arg(long, value_name = "COUNT", help_heading = "Budget")]
    pub objects_max: Option<u64>,
    /// Read at most so many bytes.
    #[arg(long, value_name = "BYTES", help_heading = "Budget")]
    pub bytes_max: Option<u64>,
    /// Take at most so long, in seconds.
    #[arg(long, value_name = "SECONDS", help_heading = "Budget")]
    pub seconds_max: Option<u64>,
    /// Objects fetched at once.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    pub fetches_max: u16,
    /// Do not build the newest snapshot again from an older one to compare.
    #[arg(long)]
    pub no_rebuild: bool,
    /// Do not list the bucket for objects that nothing leads to.
    #[arg(long)]
    pub no_list: bool,
    /// Read every request record, and not only count them.
    #[arg(long, conflicts_with = "no_list")]
    pub requests: bool,
    /// Print objects that are as they should be, too: uploads under way, and
    /// what the next sweep deletes.
    #[arg(long)]
    pub notes: bool,
    /// Exit with 9 for warnings: garbage, and objects of somebody else.
    #[arg(long)]
    pub strict: bool,
    /// Most findings printed of each severity; all are counted.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000)]
    pub findings_max: u32,
    /// Say what would be done about damaged snapshots. With --yes, do it: build
    /// the snapshot again from an older one and the changes, and publish it.
    #[arg(long)]
    pub repair: bool,
    /// Change the history.
    #[arg(long, requires = "repair")]
    pub yes: bool,
    /// Check a replica's cache directory instead: each file against the hash in
    /// its name. With --repair and --yes, delete damaged ones; they are fetched
    /// again when they are needed.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["history", "all"])]
    pub cache_dir: Option<PathBuf>,
}

impl VerifyArgs {
    pub(super) fn options(&self) -> Options {
        Options {
            fetches_max: usize::from(self.fetches_max),
            budget: Budget {
                objects_max: self.objects_max,
                bytes_max: self.bytes_max,
                time_max: self.seconds_max.map(Duration::from_secs),
            },
            rebuilds: !self.no_rebuild,
            lists_unreached: !self.no_list,
            reads_requests: self.requests,
            findings_max: self.findings_max as usize,
        }
    }
}
