//! Follows the bucket from the first version to the last, apart from everybody
//! else, and keeps every change.

use std::sync::Arc;
use std::time::Duration;

use headwater_core::follow::Position;
use headwater_core::format;
use headwater_core::head::Head;
use headwater_core::id::{HistoryName, Tag};
use headwater_s3_double::{ACCESS_KEY_ID, SECRET_ACCESS_KEY};
use headwater_state::{ChunkCache, LoadOptions, LoadedChange, Loader, View};
use headwater_store::{HeadRead, Layers, LayersConfig, S3Bucket, S3Credentials, S3Options, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::dice::entropy;

/// Between two looks at the head. Snapshots stay hundreds of versions behind,
/// so nothing is missed.
const LOOK_EVERY: Duration = Duration::from_millis(15);

/// What was followed.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) changes: Vec<LoadedChange>,
    pub(super) violations: Vec<String>,
}

pub(super) struct Witness {
    stop: watch::Sender<bool>,
    task: JoinHandle<Seen>,
}

impl Witness {
    /// Begins at the version that the history has now, which must be the first.
    pub(super) fn begin(url: &str, history: HistoryName, seed: u64) -> Result<Self, String> {
        let options = S3Options::parse(url).map_err(|it| it.to_string())?;
        let credentials = S3Credentials {
            access_key_id: ACCESS_KEY_ID.into(),
            secret_access_key: SECRET_ACCESS_KEY.into(),
        };
        let options = S3Options { credentials: Some(credentials), ..options };
        let bucket = S3Bucket::open(&options).map_err(|it| it.to_string())?;
        let layers =
            Layers::around(Arc::new(bucket), LayersConfig::default(), entropy(seed, "witness"));
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(follow(layers.store, history, stopped));
        Ok(Self { stop, task })
    }

    /// Follows to the end, and tells everything.
    pub(super) async fn end(self) -> Seen {
        self.stop.send_replace(true);
        match self.task.await {
            Ok(seen) => seen,
            Err(error) => Seen { violations: vec![error.to_string()], ..Seen::default() },
        }
    }
}

struct At {
    view: View,
    position: Position,
    tag: Tag,
}

async fn follow(store: Arc<dyn Store>, history: HistoryName, stop: watch::Receiver<bool>) -> Seen {
    let cache = ChunkCache::new(16 << 20);
    let loader = Loader::new(Arc::clone(&store), history.clone(), cache, LoadOptions::default());
    let mut seen = Seen::default();
    let mut at: Option<At> = None;
    loop {
        // Asked before the look: the last look is one after everything ended.
        let is_last = *stop.borrow();
        let read = store.read_head(&history.head_key(), at.as_ref().map(|it| &it.tag)).await;
        let is_read = match read {
            Ok(HeadRead::Found { bytes, tag }) => match format::head::decode(&bytes) {
                Ok(head) => advance(&loader, &mut at, &mut seen, head, tag).await,
                Err(error) => {
                    seen.violations.push(format!("a head is bad: {error}"));
                    return seen;
                }
            },
            Ok(HeadRead::Unchanged) => true,
            Ok(HeadRead::Missing) | Err(_) => false,
        };
        if (is_last && is_read) || !seen.violations.is_empty() {
            return seen;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Takes a head in; false where it has to be read again.
async fn advance(
    loader: &Loader,
    at: &mut Option<At>,
    seen: &mut Seen,
    head: Head,
    tag: Tag,
) -> bool {
    let position = Position::of(&head);
    let (view, changes) = match at {
        None => match loader.open(&head).await {
            Ok(opened) => (opened.view, opened.changes),
            Err(_) => return false,
        },
        Some(it) => match loader.advance(&it.view, &it.position, &head).await {
            Ok(advanced) if advanced.reopened => {
                seen.violations.push("snapshots overtook the witness: look more often".into());
                return false;
            }
            Ok(advanced) => (advanced.view, advanced.changes),
            Err(headwater_state::StateError::Follow(error)) => {
                seen.violations.push(format!("a head does not follow: {error}"));
                return false;
            }
            // Out of reach, or swept while it was overtaken: the next look tells.
            Err(_) => return false,
        },
    };
    let last = seen.changes.last().map_or(0, |it| it.version.get());
    if changes.first().is_some_and(|it| it.version.get() != last + 1) {
        seen.violations.push(format!("a change is missing after v{last}"));
    }
    seen.changes.extend(changes);
    *at = Some(At { view, position, tag });
    true
}
