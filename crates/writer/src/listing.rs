//! Listing histories by name.
//!
//! Names nest, and a folder tells neither whether a history is in it nor
//! whether one is below it, so folders are looked into in the order of names,
//! some at a time, and no further than the page reaches: a page costs what it
//! shows, and a token continues where the last one ended.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use headwater_core::id::HistoryName;
use headwater_core::keys;
use headwater_core::publish::Trouble;
use headwater_store::ReadError;

use crate::driver::read_trouble;
use crate::histories::Histories;

/// Folders looked into at a time.
const LOOKS_AT_ONCE: usize = 16;

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing<'a> {
    /// How the names begin.
    pub(crate) prefix: &'a str,
    /// Only names after this one.
    pub(crate) after: Option<&'a str>,
    /// At most this many.
    pub(crate) limit: usize,
}

/// What a folder turned out to be.
struct Look {
    name: String,
    is_live: bool,
    /// Names of the folders in it that may hold wanted histories.
    below: Vec<String>,
}

impl Listing<'_> {
    fn wants(&self, name: &str) -> bool {
        name.starts_with(self.prefix) && self.after.is_none_or(|it| it < name)
    }

    /// Whether `name` or anything below it can be wanted.
    fn reaches(&self, name: &str) -> bool {
        let folder = format!("{name}/");
        let overlaps = name.starts_with(self.prefix) || self.prefix.starts_with(&folder);
        // `0` comes after `/`: whatever is below `name` comes before it.
        let is_ahead = self.after.is_none_or(|it| *it < *format!("{name}0"));
        overlaps && is_ahead && HistoryName::parse(name).is_ok()
    }
}

impl Histories {
    /// Names of live histories, in order; and whether there are more.
    pub(crate) async fn list(&self, listing: Listing<'_>) -> Result<(Vec<String>, bool), Trouble> {
        let first = listing.prefix.rfind('/').map_or("", |at| &listing.prefix[..at]);
        let mut ahead = BTreeSet::from([first.to_owned()]);
        let mut found = BTreeSet::new();
        let mut names = Vec::new();
        while names.len() <= listing.limit && !ahead.is_empty() {
            let looks: Vec<String> =
                std::iter::from_fn(|| ahead.pop_first()).take(LOOKS_AT_ONCE).collect();
            let looks: Vec<Look> = stream::iter(looks)
                .map(|name| self.look_into(listing, name))
                .buffer_unordered(LOOKS_AT_ONCE)
                .try_collect()
                .await?;
            for look in looks {
                ahead.extend(look.below);
                if look.is_live {
                    found.insert(look.name);
                }
            }
            // What is still ahead may come before what was found.
            while let Some(name) = found.pop_first() {
                if ahead.first().is_some_and(|it| *it < name) {
                    found.insert(name);
                    break;
                }
                names.push(name);
            }
        }
        let has_more = listing.limit < names.len();
        names.truncate(listing.limit);
        Ok((names, has_more))
    }

    async fn look_into(&self, listing: Listing<'_>, name: String) -> Result<Look, Trouble> {
        let folder = if name.is_empty() { String::new() } else { format!("{name}/") };
        let listed = match self.store.list_folder(&folder).await {
            Ok(listed) => listed,
            Err(ReadError::Missing { .. }) => {
                return Ok(Look { name, is_live: false, below: Vec::new() });
            }
            Err(error) => return Err(read_trouble(&error)),
        };
        let head = format!("{folder}{}", keys::HEAD);
        let has_head = listed.objects.iter().any(|it| it.key == head);
        let is_live = has_head && listing.wants(&name) && self.is_live(&name).await?;
        let below = listed.folders.iter().map(|it| it.trim_end_matches('/').to_owned());
        let below = below.filter(|it| listing.reaches(it)).collect();
        Ok(Look { name, is_live, below })
    }

    async fn is_live(&self, name: &str) -> Result<bool, Trouble> {
        let Ok(name) = HistoryName::parse(name) else { return Ok(false) };
        match self.head_of(&name).await {
            Ok(found) => Ok(found.is_some_and(|(head, _)| !head.is_retired())),
            // It is there, whatever is wrong with it.
            Err(Trouble::BadData { .. } | Trouble::TooNew { .. }) => Ok(true),
            Err(trouble @ (Trouble::Unavailable | Trouble::Overtaken { .. } | Trouble::Denied)) => {
                Err(trouble)
            }
        }
    }
}
