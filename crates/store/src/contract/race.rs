//! Rules that only show under a race. A server that compares and writes in two
//! steps keeps all the others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::{Broken, Place, broken, done, ensure, read, replaced};
use crate::{Entropy, HeadWrite, PutError, Store};

/// Attempts of one writer to win once, against 31 others. With fair luck it
/// takes 32.
const ATTEMPTS_MAX: usize = 5_000;

async fn joined<T: 'static>(
    rule: &'static str,
    mut tasks: JoinSet<Result<T, Broken>>,
) -> Result<Vec<T>, Broken> {
    let mut answers = Vec::new();
    while let Some(answer) = tasks.join_next().await {
        answers.push(done(rule, answer)??);
    }
    Ok(answers)
}

impl Place {
    fn handle(&self, writer: usize) -> Arc<dyn Store> {
        Arc::clone(if writer.is_multiple_of(2) { &self.one } else { &self.other })
    }
}

pub(super) async fn create(place: &Place) -> Result<(), Broken> {
    let rule = "of many that create one head at once, one does";
    let key = place.key("race-create/head.json");
    let barrier = Arc::new(Barrier::new(place.n_writers));
    let mut tasks = JoinSet::new();
    for writer in 0..place.n_writers {
        let (store, key, barrier) = (place.handle(writer), key.clone(), Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            for _ in 0..ATTEMPTS_MAX {
                match store.create_head(&key, Bytes::from(writer.to_string())).await {
                    HeadWrite::Replaced { .. } => return Ok(Some(writer)),
                    HeadWrite::Mismatch => return Ok(None),
                    HeadWrite::Gone => return Err(broken(rule, HeadWrite::Gone)),
                    // 409, or a moment of overload: nothing was claimed.
                    HeadWrite::NoAnswer(_) => sleep(Duration::from_millis(5)).await,
                }
            }
            Err(broken(rule, "no answer, again and again"))
        });
    }
    let created: Vec<_> = joined(rule, tasks).await?.into_iter().flatten().collect();
    let [winner] = created[..] else { return Err(broken(rule, created)) };
    let (found, _) = read(rule, &*place.one, &key).await?;
    ensure(rule, found == winner.to_string(), found)
}

pub(super) async fn put(place: &Place) -> Result<(), Broken> {
    let rule = "of many that write one key with other bytes at once, one does";
    let key = place.key("race-put/object");
    let barrier = Arc::new(Barrier::new(place.n_writers));
    let mut tasks = JoinSet::new();
    for writer in 0..place.n_writers {
        let (store, key, barrier) = (place.handle(writer), key.clone(), Arc::clone(&barrier));
        tasks.spawn(async move {
            barrier.wait().await;
            for _ in 0..ATTEMPTS_MAX {
                match store.put(&key, Bytes::from(writer.to_string())).await {
                    Ok(()) => return Ok(Some(writer)),
                    Err(PutError::Occupied { .. }) => return Ok(None),
                    Err(PutError::Store(_)) => sleep(Duration::from_millis(5)).await,
                }
            }
            Err(broken(rule, "unavailable, again and again"))
        });
    }
    let written: Vec<_> = joined(rule, tasks).await?.into_iter().flatten().collect();
    let [winner] = written[..] else { return Err(broken(rule, written)) };
    let found = done(rule, place.one.get(&key).await)?;
    ensure(rule, found == winner.to_string(), found)
}

pub(super) async fn replace(place: &Place) -> Result<(), Broken> {
    let rule = "no update of a head is lost among many writers";
    let key = place.key("race-replace/head.json");
    replaced(rule, place.one.create_head(&key, Bytes::from_static(b"|")).await)?;
    let barrier = Arc::new(Barrier::new(place.n_writers));
    let mut tasks = JoinSet::new();
    for writer in 0..place.n_writers {
        let (store, key, barrier) = (place.handle(writer), key.clone(), Arc::clone(&barrier));
        let (entropy, n_rounds) = (place.entropy.clone(), place.n_rounds);
        tasks.spawn(async move {
            barrier.wait().await;
            for round in 0..n_rounds {
                append(rule, &*store, &key, &format!("{writer}.{round}"), &entropy).await?;
            }
            Ok(())
        });
    }
    joined(rule, tasks).await?;
    let (found, _) = read(rule, &*place.other, &key).await?;
    let text = String::from_utf8_lossy(&found);
    let mut names: Vec<_> = text.split_terminator('|').filter(|it| !it.is_empty()).collect();
    let n_names = names.len();
    names.sort_unstable();
    names.dedup();
    let expected = place.n_writers * place.n_rounds;
    ensure(rule, (n_names, names.len()) == (expected, expected), (n_names, names.len(), expected))
}

/// Appends a name to the head, once: what has no answer is looked for before it
/// is tried again, as the protocol does.
async fn append(
    rule: &'static str,
    store: &dyn Store,
    key: &str,
    name: &str,
    entropy: &Entropy,
) -> Result<(), Broken> {
    for _ in 0..ATTEMPTS_MAX {
        // Under a race a read may be refused for a moment too.
        let Ok(crate::HeadRead::Found { bytes, tag }) = store.read_head(key, None).await else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        let text = String::from_utf8_lossy(&bytes);
        if text.contains(&format!("|{name}|")) {
            return Ok(());
        }
        match store.replace_head(key, &tag, Bytes::from(format!("{text}{name}|"))).await {
            HeadWrite::Replaced { .. } => return Ok(()),
            HeadWrite::Gone => return Err(broken(rule, HeadWrite::Gone)),
            HeadWrite::Mismatch => sleep(entropy.jitter(Duration::from_millis(10))).await,
            HeadWrite::NoAnswer(_) => sleep(entropy.jitter(Duration::from_millis(50))).await,
        }
    }
    Err(broken(rule, format!("{name} was never applied")))
}
