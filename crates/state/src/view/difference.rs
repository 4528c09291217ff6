//! What it takes to turn one state into another.

use headwater_core::operation::{Key, KeyRange, Mutation};

use super::{Entry, Scan, View};
use crate::error::StateError;

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
    /// Reads both states whole, a page at a time. Cancel safe.
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
        let (mut now, mut then) = (Cursor::over(self), Cursor::over(wanted));
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

/// The entries of a state in order.
struct Cursor<'a> {
    view: &'a View,
    page: std::vec::IntoIter<Entry>,
    next: Option<Entry>,
    /// Where the next page begins; `None` once there is none.
    rest: Option<Scan>,
}

impl<'a> Cursor<'a> {
    fn over(view: &'a View) -> Self {
        let scan = Scan {
            range: KeyRange::everything(),
            after: None,
            reverse: false,
            keys_only: false,
            entries_max: PAGE_ENTRIES,
            bytes_max: PAGE_BYTES,
        };
        Self { view, page: Vec::new().into_iter(), next: None, rest: Some(scan) }
    }

    async fn peek(&mut self) -> Result<Option<&Entry>, StateError> {
        while self.next.is_none() {
            if let Some(entry) = self.page.next() {
                self.next = Some(entry);
                break;
            }
            let Some(scan) = self.rest.take() else { break };
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
