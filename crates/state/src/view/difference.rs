//! What it takes to turn one state into another.
//!
//! ```text
//! now    [a .. c] [d .. f] [g .. k] [l .. p]     chunks
//! then   [a .. c] [d .. e] [f .. k] [l .. p]
//! equal  [a .. c]                   [l .. p]     unless a tail wrote there
//! read            (c .................. l)       of both
//! ```
//!
//! Chunks are named by what they hold, so what both snapshots name needs no
//! reading, and of an index page that both name not even the page does.

use std::collections::BTreeSet;

use bytes::Bytes;
use headwater_core::hash::ContentHash;
use headwater_core::operation::{Key, KeyRange, Mutation};

use super::base::Base;
use super::{Entry, Scan, View};
use crate::error::StateError;
use crate::page::PagePlace;

/// Entries of each state that are held at a time.
const PAGE_ENTRIES: usize = 1_000;
/// Their bytes.
const PAGE_BYTES: usize = 4 << 20;

/// The difference between two states, within limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// These mutations, in order of keys.
    Mutations(Vec<Mutation>),
    /// More keys or bytes than were allowed.
    TooLarge,
}

impl View {
    /// The mutations that turn this state into that of `wanted`: values are
    /// compared, and not the versions that wrote them.
    ///
    /// Reads of both what is not equal by name, a page at a time. Memory: the two
    /// pages, the mutations, and for each chunk and index page of `wanted` about
    /// 50 bytes. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`StateError`].
    pub async fn difference(
        &self,
        wanted: &Self,
        keys_max: usize,
        bytes_max: usize,
    ) -> Result<Difference, StateError> {
        let unequal = unequal(self, wanted).await?;
        let (mut now, mut then) = (Cursor::over(self, &unequal), Cursor::over(wanted, &unequal));
        let (mut mutations, mut size_bytes) = (Vec::new(), 0);
        loop {
            let mutation = match (now.peek().await?, then.peek().await?) {
                (None, None) => return Ok(Difference::Mutations(mutations)),
                (Some(it), None) => {
                    let key = it.key.clone();
                    now.pass();
                    Some(Mutation::Delete(key))
                }
                (Some(it), Some(old)) if it.key < old.key => {
                    let key = it.key.clone();
                    now.pass();
                    Some(Mutation::Delete(key))
                }
                (Some(it), Some(old)) if it.key == old.key => {
                    let is_same = it.value == old.value;
                    let put = Mutation::Put(old.key.clone(), old.value.clone());
                    now.pass();
                    then.pass();
                    Some(put).filter(|_| !is_same)
                }
                (_, Some(old)) => {
                    let put = Mutation::Put(old.key.clone(), old.value.clone());
                    then.pass();
                    Some(put)
                }
            };
            let Some(mutation) = mutation else { continue };
            size_bytes += size(&mutation);
            if keys_max <= mutations.len() || bytes_max < size_bytes {
                return Ok(Difference::TooLarge);
            }
            mutations.push(mutation);
        }
    }
}

fn size(mutation: &Mutation) -> usize {
    match mutation {
        Mutation::Put(key, value) => key.as_bytes().len() + value.len(),
        Mutation::Delete(key) | Mutation::Add(key, _) => key.as_bytes().len(),
        Mutation::DeleteRange(_) => 0,
    }
}

/// Keys between two equal runs: after the first and before the second.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gap {
    after: Option<Key>,
    before: Option<Key>,
}

impl Gap {
    fn scan(&self) -> Scan {
        let end = self.before.as_ref().map(|it| Bytes::copy_from_slice(it.as_ref()));
        // A key is a bound: it is not empty, and no longer than one.
        let range = KeyRange::new(Bytes::new(), end).unwrap_or_else(|_| KeyRange::everything());
        Scan {
            range,
            after: self.after.clone(),
            reverse: false,
            keys_only: false,
            entries_max: PAGE_ENTRIES,
            bytes_max: PAGE_BYTES,
        }
    }
}

/// Where the two states may differ, in order of keys.
async fn unequal(now: &View, then: &View) -> Result<Vec<Gap>, StateError> {
    let names = Names::of(now.base(), then.base()).await?;
    let mut gaps = Gaps { gaps: Vec::new(), after: None };
    for place in now.base().places() {
        let Some((first, last)) = place.bounds() else { continue };
        let is_shared = names.has_page(place);
        if is_shared && is_left_alone(now, then, first, last) {
            gaps.pass(first, last);
            continue;
        }
        for chunk in now.base().page_once(place).await?.chunks() {
            let is_named = is_shared || names.chunks.contains(&chunk.object.hash);
            if is_named && is_left_alone(now, then, &chunk.first, &chunk.last) {
                gaps.pass(&chunk.first, &chunk.last);
            }
        }
    }
    Ok(gaps.finish())
}

/// Whether no tail wrote or deleted anything between the two keys.
fn is_left_alone(now: &View, then: &View, first: &Key, last: &Key) -> bool {
    let mut overlays = [now.overlay(), then.overlay()].into_iter();
    overlays.all(|it| it.is_untouched(first.as_ref(), last.as_ref()))
}

/// What both snapshots name, as far as it is pages; and the chunks in the other
/// pages of one.
struct Names {
    pages: BTreeSet<ContentHash>,
    chunks: BTreeSet<ContentHash>,
}

impl Names {
    async fn of(now: &Base, then: &Base) -> Result<Self, StateError> {
        let hashes =
            |it: &Base| -> BTreeSet<_> { it.places().into_iter().filter_map(page_hash).collect() };
        let pages: BTreeSet<_> = hashes(now).intersection(&hashes(then)).copied().collect();
        let mut names = Self { pages, chunks: BTreeSet::new() };
        for place in then.places() {
            if !names.has_page(place) {
                let page = then.page_once(place).await?;
                names.chunks.extend(page.chunks().map(|it| it.object.hash));
            }
        }
        Ok(names)
    }

    fn has_page(&self, place: PagePlace<'_>) -> bool {
        page_hash(place).is_some_and(|it| self.pages.contains(&it))
    }
}

/// `None` for the only page of an index that has one.
fn page_hash(place: PagePlace<'_>) -> Option<ContentHash> {
    match place {
        PagePlace::Here(_) => None,
        PagePlace::There(page) => Some(page.object.hash),
    }
}

/// Gaps in the making.
struct Gaps {
    gaps: Vec<Gap>,
    after: Option<Key>,
}

impl Gaps {
    /// An equal run, behind those before.
    fn pass(&mut self, first: &Key, last: &Key) {
        let (after, before) = (self.after.replace(last.clone()), Some(first.clone()));
        self.gaps.push(Gap { after, before });
    }

    fn finish(mut self) -> Vec<Gap> {
        self.gaps.push(Gap { after: self.after, before: None });
        self.gaps
    }
}

/// The entries of a state in order, as far as they lie in gaps.
struct Cursor<'a> {
    view: &'a View,
    gaps: std::slice::Iter<'a, Gap>,
    page: std::vec::IntoIter<Entry>,
    next: Option<Entry>,
    /// Where the next page of the gap begins; `None` once there is none.
    rest: Option<Scan>,
}

impl<'a> Cursor<'a> {
    fn over(view: &'a View, gaps: &'a [Gap]) -> Self {
        let page = Vec::new().into_iter();
        Self { view, gaps: gaps.iter(), page, next: None, rest: None }
    }

    async fn peek(&mut self) -> Result<Option<&Entry>, StateError> {
        while self.next.is_none() {
            if let Some(entry) = self.page.next() {
                self.next = Some(entry);
                break;
            }
            let scan = match (self.rest.take(), &mut self.gaps) {
                (Some(rest), _) => rest,
                (None, gaps) => match gaps.next() {
                    Some(gap) => gap.scan(),
                    None => break,
                },
            };
            let page = self.view.scan(&scan).await?;
            let after: Option<Key> = page.next;
            self.rest = after.map(|after| Scan { after: Some(after), ..scan });
            self.page = page.entries.into_iter();
        }
        Ok(self.next.as_ref())
    }

    fn pass(&mut self) {
        self.next = None;
    }
}
