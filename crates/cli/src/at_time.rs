//! Moments on the command line, and `version-at`.

use std::time::SystemTime;

use clap::Args;
use headwater_client::{Client, Consistency, Session};
use prost_types::Timestamp;
use serde_json::json;

use crate::args::{Freshness, Source};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::output::Output;
use crate::read::stamp_json;

/// A moment, as RFC 3339 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(SystemTime);

impl std::str::FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || "give a date and a time of day, as in 2026-11-30T09:30:00Z".to_owned();
        // What follows the date is optional there, and a day without an hour is
        // not a moment.
        if !text.contains(['T', 't', ' ']) {
            return Err(wrong());
        }
        let timestamp: Timestamp = text.parse().map_err(|_| wrong())?;
        SystemTime::try_from(timestamp).map(Self).map_err(|_| wrong())
    }
}

/// Reads as of a moment.
#[derive(Clone, Debug, Default, Args)]
pub struct AtTime {
    /// The version of this moment, as `version-at` finds it: 2026-11-30T09:30:00Z.
    #[arg(long, value_name = "TIME", conflicts_with = "Freshness", help_heading = "Freshness")]
    pub at_time: Option<Moment>,
}

impl AtTime {
    /// How fresh a read has to be: exactly the version of the moment, where one
    /// is given.
    pub(crate) async fn level(
        &self,
        session: &Session,
        freshness: &Freshness,
    ) -> Result<Consistency, Failed> {
        let Some(Moment(time)) = self.at_time else { return Ok(freshness.level()) };
        let found = session.version_at(time, Consistency::Strong).await?;
        Ok(Consistency::Exact(found.value.version))
    }
}

/// `version-at`
#[derive(Clone, Debug, Args)]
pub struct VersionAtArgs {
    /// Which history.
    #[command(flatten)]
    pub source: Source,
    /// The moment: 2026-11-30T09:30:00Z, or with an offset. Writers' clocks
    /// decide, so it is as exact as they are.
    pub time: Moment,
    /// How fresh.
    #[command(flatten)]
    pub freshness: Freshness,
}

pub(crate) async fn version_at(
    client: &Client,
    args: &VersionAtArgs,
    output: &mut Output,
) -> Result<Exit, Failed> {
    let session = args.source.session(client);
    let found = session.version_at(args.time.0, args.freshness.level()).await?;
    let decided_at = found.value.decided_at.map(|it| Timestamp::from(it).to_string());
    let version = found.value.version;
    output.answer(
        || {
            let stamp = stamp_json(&found.stamp);
            json!({ "version": version, "decidedAt": decided_at, "stamp": stamp })
        },
        || version.to_string(),
    )?;
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn moments_are_read_as_rfc_3339_has_them() {
        let moment = |text: &str| text.parse::<Moment>();
        let at = |ms| Ok(Moment(UNIX_EPOCH + Duration::from_millis(ms)));
        assert_eq!(moment("1970-01-01T00:00:00Z"), at(0));
        assert_eq!(moment("2026-11-30T09:30:00.250Z"), at(1_796_031_000_250));
        assert_eq!(moment("2026-11-30T11:30:00+02:00"), at(1_796_031_000_000));
        for wrong in ["", "now", "2026-11-30", "12:00", "2026-13-01T00:00:00Z", "1796031000"] {
            assert!(moment(wrong).is_err(), "{wrong}");
        }
    }
}
