//! [`Store`] in memory: for tests, and as the model of what the others do.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use headwater_core::id::Tag;

use crate::{Folder, HeadRead, HeadWrite, Listed, NoAnswer, PutError, ReadError, Store, key};

/// Objects in this process. Clones share them; nothing outlives the last one.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<Mutex<Objects>>);

#[derive(Debug, Default)]
struct Objects {
    by_key: BTreeMap<String, Object>,
    /// Writes so far. A tag is the number of its write, so none ever recurs.
    n_writes: u64,
}

#[derive(Debug)]
struct Object {
    bytes: Bytes,
    tag: Tag,
}

impl Objects {
    fn write(&mut self, key: &str, bytes: Bytes) -> Tag {
        self.n_writes += 1;
        let tag = Tag::new(format!("\"{}\"", self.n_writes));
        self.by_key.insert(key.into(), Object { bytes, tag: tag.clone() });
        tag
    }

    fn after<'a>(
        &'a self,
        prefix: &'a str,
        start_after: Option<&str>,
    ) -> impl Iterator<Item = Listed> + 'a {
        let from = match start_after {
            Some(key) if prefix <= key => Bound::Excluded(key.to_owned()),
            _ => Bound::Included(prefix.to_owned()),
        };
        self.by_key
            .range((from, Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(key, it)| Listed { key: key.clone(), size_bytes: it.bytes.len() as u64 })
    }
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        // No method panics between two writes of the map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    async fn read_head(&self, key: &str, known: Option<&Tag>) -> Result<HeadRead, ReadError> {
        key::check(key, 0).map_err(|it| ReadError::bad_key(key, it))?;
        Ok(match self.objects().by_key.get(key) {
            None => HeadRead::Missing,
            Some(it) if known == Some(&it.tag) => HeadRead::Unchanged,
            Some(it) => HeadRead::Found { bytes: it.bytes.clone(), tag: it.tag.clone() },
        })
    }

    async fn create_head(&self, key: &str, bytes: Bytes) -> HeadWrite {
        if let Err(error) = key::check(key, 0) {
            return HeadWrite::NoAnswer(NoAnswer::bad_key(error));
        }
        let mut objects = self.objects();
        if objects.by_key.contains_key(key) {
            return HeadWrite::Mismatch;
        }
        HeadWrite::Replaced { tag: objects.write(key, bytes) }
    }

    async fn replace_head(&self, key: &str, if_match: &Tag, bytes: Bytes) -> HeadWrite {
        if let Err(error) = key::check(key, 0) {
            return HeadWrite::NoAnswer(NoAnswer::bad_key(error));
        }
        let mut objects = self.objects();
        match objects.by_key.get(key) {
            None => HeadWrite::Gone,
            Some(it) if it.tag != *if_match => HeadWrite::Mismatch,
            Some(_) => HeadWrite::Replaced { tag: objects.write(key, bytes) },
        }
    }

    async fn put(&self, key: &str, bytes: Bytes) -> Result<(), PutError> {
        key::check(key, 0).map_err(|it| ReadError::bad_key(key, it))?;
        let mut objects = self.objects();
        match objects.by_key.get(key) {
            Some(it) if it.bytes == bytes => Ok(()),
            Some(_) => Err(PutError::Occupied { key: key.into() }),
            None => {
                objects.write(key, bytes);
                Ok(())
            }
        }
    }

    async fn get(&self, key: &str) -> Result<Bytes, ReadError> {
        key::check(key, 0).map_err(|it| ReadError::bad_key(key, it))?;
        let objects = self.objects();
        let found = objects.by_key.get(key);
        found.map(|it| it.bytes.clone()).ok_or_else(|| ReadError::Missing { key: key.into() })
    }

    async fn get_sized(&self, key: &str, _size_bytes: u64) -> Result<Bytes, ReadError> {
        self.get(key).await
    }

    async fn list(
        &self,
        prefix: &str,
        start_after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Listed>, ReadError> {
        key::check_prefix(prefix, 0).map_err(|it| ReadError::bad_key(prefix, it))?;
        Ok(self.objects().after(prefix, start_after).take(limit).collect())
    }

    async fn list_folder(&self, prefix: &str) -> Result<Folder, ReadError> {
        key::check_folder(prefix, 0).map_err(|it| ReadError::bad_key(prefix, it))?;
        let mut folder = Folder::default();
        for object in self.objects().after(prefix, None) {
            match object.key[prefix.len()..].split_once('/') {
                None => folder.objects.push(object),
                Some((name, _)) => {
                    let name = format!("{prefix}{name}/");
                    if folder.folders.last() != Some(&name) {
                        folder.folders.push(name);
                    }
                }
            }
        }
        Ok(folder)
    }

    async fn delete(&self, key: &str) -> Result<(), ReadError> {
        key::check(key, 0).map_err(|it| ReadError::bad_key(key, it))?;
        self.objects().by_key.remove(key);
        Ok(())
    }
}
