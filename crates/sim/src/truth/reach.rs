//! What a head reaches: everything that it names, and what that names in turn.

use std::collections::HashSet;

use bytes::Bytes;
use headwater_core::format;
use headwater_core::format::snapshot::Parts;
use headwater_core::head::ObjectRef;
use headwater_core::id::HistoryName;

use super::heads::Objects;

/// Goes from object to object, and takes down what is not there.
pub(super) struct Walk<'a, O> {
    history: &'a HistoryName,
    objects: &'a O,
    /// What was reached before, and was seen to be there.
    before: &'a HashSet<String>,
    /// Keys below the root of the store.
    reached: HashSet<String>,
    found: Vec<String>,
}

impl<'a, O: Objects> Walk<'a, O> {
    pub(super) fn new(
        history: &'a HistoryName,
        objects: &'a O,
        before: &'a HashSet<String>,
    ) -> Self {
        Self { history, objects, before, reached: HashSet::new(), found: Vec::new() }
    }

    /// What was reached, and what was wrong.
    pub(super) fn finish(self) -> (HashSet<String>, Vec<String>) {
        (self.reached, self.found)
    }

    /// Takes an object in; below the prefix of `owner` where it is another's.
    /// Whether it was taken in already.
    pub(super) fn visit(&mut self, owner: Option<&HistoryName>, object: &ObjectRef) -> bool {
        let key = owner.unwrap_or(self.history).object_key(&object.key);
        if self.reached.contains(&key) {
            return true;
        }
        if !self.before.contains(&key) {
            match self.objects.bytes(&key) {
                None => self.found.push(format!("it reaches {key}, which is missing")),
                Some(bytes) if !object.is_to(&bytes) => {
                    self.found.push(format!("it reaches {key}, which holds other bytes"));
                }
                Some(_) => (),
            }
        }
        self.reached.insert(key);
        false
    }

    /// A snapshot's index, its pages, and its chunks.
    pub(super) fn index(&mut self, index: &ObjectRef) {
        self.visit(None, index);
        match self.decoded(None, index, format::snapshot::decode).map(|it| it.parts) {
            None => (),
            Some(Parts::Chunks(chunks)) => {
                for chunk in &chunks {
                    self.visit(chunk.owner.as_deref(), &chunk.object);
                }
            }
            Some(Parts::Pages(pages)) => {
                for page in &pages {
                    if !self.visit(page.owner.as_deref(), &page.object) {
                        self.page(page.owner.as_deref(), &page.object);
                    }
                }
            }
        }
    }

    fn page(&mut self, owner: Option<&HistoryName>, page: &ObjectRef) {
        let chunks = self.decoded(owner, page, format::snapshot_page::decode);
        for chunk in chunks.unwrap_or_default() {
            // A page of another history means its own chunks where it names
            // no owner.
            self.visit(chunk.owner.as_deref().or(owner), &chunk.object);
        }
    }

    /// Everything that the archive names; returns the snapshots among that.
    pub(super) fn archive(&mut self, archive: &ObjectRef) -> Vec<ObjectRef> {
        let decoded = self.decoded(None, archive, format::archive::decode);
        let Some(decoded) = decoded else { return Vec::new() };
        for object in decoded.references() {
            self.visit(None, object);
        }
        decoded.snapshots.into_iter().map(|it| it.snapshot.object).collect()
    }

    fn decoded<T, E: std::fmt::Display>(
        &mut self,
        owner: Option<&HistoryName>,
        object: &ObjectRef,
        decode: impl Fn(Bytes) -> Result<T, E>,
    ) -> Option<T> {
        let key = owner.unwrap_or(self.history).object_key(&object.key);
        // That it is missing was taken down.
        let bytes = self.objects.bytes(&key)?;
        decode(bytes).map_err(|error| self.found.push(format!("{key} is bad: {error}"))).ok()
    }
}
