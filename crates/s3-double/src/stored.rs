//! What the bucket holds, and how its conduct reads and writes it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::StatusCode;
use md5::{Digest, Md5};
use s3s::dto::{ETag, ETagCondition, Timestamp};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use tokio::time::{Instant, sleep};

use crate::conduct::{Conditions, Conduct, Tags};
use crate::op::Op;
use crate::uploads::Uploads;

/// The objects of the bucket, and its conduct. Clones share both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(Arc<Mutex<Stored>>);

#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub(crate) conduct: Conduct,
    by_key: BTreeMap<String, Object>,
    n_writes: u64,
    /// What listings know of, and what they will get to know, oldest first.
    listed: BTreeMap<String, Listed>,
    pub(crate) uploads: Uploads,
    unlisted: VecDeque<(Instant, String, Option<Listed>)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) bytes: Bytes,
    pub(crate) e_tag: ETag,
    pub(crate) modified: Timestamp,
    pub(crate) generation: u64,
    written_at: Instant,
}

/// An object as a listing has it.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    pub(crate) len_bytes: usize,
    pub(crate) e_tag: ETag,
    pub(crate) modified: Timestamp,
}

/// The conditions of a write.
#[derive(Clone, Debug, Default)]
pub(crate) struct Condition {
    pub(crate) if_match: Option<ETagCondition>,
    pub(crate) if_none_match: Option<ETagCondition>,
    /// Of GCS: the generation of the object, 0 where there must be none.
    pub(crate) generation: Option<u64>,
    /// The tag that the object gets; `None`: a hash of the bytes.
    pub(crate) e_tag: Option<ETag>,
}

impl Condition {
    fn is_create(&self) -> bool {
        self.if_none_match.is_some() || self.generation == Some(0)
    }
}

/// The first generation. Google's are microseconds; these only look like it.
const GENERATION_FIRST: u64 = 1_700_000_000_000_000;

impl Objects {
    pub(crate) fn stored(&self) -> MutexGuard<'_, Stored> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn conduct(&self) -> Conduct {
        self.stored().conduct.clone()
    }

    pub(crate) fn set_conduct(&self, conduct: Conduct) {
        self.stored().conduct = conduct;
    }

    /// The bytes of an object.
    pub(crate) fn bytes(&self, key: &str) -> Option<Bytes> {
        self.stored().by_key.get(key).map(|it| it.bytes.clone())
    }

    /// All keys, in order.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.stored().by_key.keys().cloned().collect()
    }

    /// Compares and writes, as [`Objects::write_object`]; the tag.
    pub(crate) async fn write(
        &self,
        key: &str,
        condition: &Condition,
        bytes: Bytes,
    ) -> S3Result<ETag> {
        Ok(self.write_object(key, condition, bytes).await?.e_tag)
    }

    /// Compares and writes: in one hold of the lock, or as the conduct has it.
    pub(crate) async fn write_object(
        &self,
        key: &str,
        condition: &Condition,
        bytes: Bytes,
    ) -> S3Result<Object> {
        let e_tag = condition.e_tag.clone();
        let gap = {
            let mut stored = self.stored();
            stored.check(key, condition)?;
            match stored.conduct.conditions.gap(condition.is_create()) {
                None => return Ok(stored.insert(key, bytes, e_tag)),
                Some(gap) => gap,
            }
        };
        sleep(gap).await;
        Ok(self.stored().insert(key, bytes, e_tag))
    }

    pub(crate) fn find(
        &self,
        key: &str,
        if_none_match: Option<&ETagCondition>,
        key_id: Option<&str>,
    ) -> S3Result<Object> {
        let stored = self.stored();
        let Some(object) = stored.by_key.get(key).cloned() else {
            let may_list = !stored.conduct.denies(Op::List, key_id);
            return Err(if may_list { s3_error!(NoSuchKey) } else { s3_error!(AccessDenied) });
        };
        match if_none_match {
            Some(ETagCondition::Any) => Err(s3_error!(NotModified)),
            Some(ETagCondition::ETag(tag)) if object.e_tag.weak_cmp(tag) => {
                Err(s3_error!(NotModified))
            }
            Some(ETagCondition::ETag(_)) | None => Ok(object),
        }
    }
}

impl Stored {
    fn check(&self, key: &str, condition: &Condition) -> S3Result<()> {
        let found = self.by_key.get(key);
        if let (Some(limit), Some(found)) = (self.conduct.limit, found)
            && found.written_at.elapsed() < limit.interval
        {
            return Err(too_soon(limit.status));
        }
        let (checks_match, checks_none) = match self.conduct.conditions {
            Conditions::Honoured | Conditions::CreatesRace(_) | Conditions::Race(_) => (true, true),
            Conditions::IfMatchIgnored => (false, true),
            Conditions::Ignored => (false, false),
        };
        match (condition.if_match.as_ref().filter(|_| checks_match), found) {
            (None, _) | (Some(ETagCondition::Any), Some(_)) => (),
            (Some(ETagCondition::ETag(tag)), Some(it)) if it.e_tag.strong_cmp(tag) => (),
            (Some(_), Some(_)) => return Err(s3_error!(PreconditionFailed)),
            (Some(_), None) => return Err(s3_error!(NoSuchKey)),
        }
        let found_generation = found.map_or(0, |it| it.generation);
        match condition.generation {
            Some(0) if !checks_none => (),
            Some(1..) if !checks_match => (),
            Some(generation) if generation != found_generation => {
                return Err(s3_error!(PreconditionFailed));
            }
            Some(_) | None => (),
        }
        match (condition.if_none_match.as_ref().filter(|_| checks_none), found) {
            (None, _) | (Some(_), None) => Ok(()),
            (Some(ETagCondition::Any), Some(_)) => Err(s3_error!(PreconditionFailed)),
            (Some(ETagCondition::ETag(_)), Some(_)) => Err(s3_error!(NotImplemented)),
        }
    }

    fn insert(&mut self, key: &str, bytes: Bytes, given: Option<ETag>) -> Object {
        self.n_writes += 1;
        let hash = || given.map_or_else(|| md5_of(&bytes), ETag::into_value);
        let e_tag = match self.conduct.tags {
            Tags::ContentHash => ETag::Strong(hash()),
            Tags::Weak => ETag::Weak(hash()),
            Tags::Unique => ETag::Strong(format!("{:032x}", self.n_writes)),
        };
        // Times of their own, one second for each write: no clock is needed.
        let modified: Timestamp =
            (SystemTime::UNIX_EPOCH + Duration::from_secs(self.n_writes)).into();
        let (len_bytes, written_at) = (bytes.len(), Instant::now());
        let listed = Listed { len_bytes, e_tag: e_tag.clone(), modified: modified.clone() };
        let generation = GENERATION_FIRST + self.n_writes;
        let object = Object { bytes, e_tag, modified, generation, written_at };
        self.by_key.insert(key.into(), object.clone());
        self.list_later(key, Some(listed));
        object
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.by_key.remove(key);
        self.list_later(key, None);
    }

    fn list_later(&mut self, key: &str, listed: Option<Listed>) {
        self.unlisted.push_back((Instant::now(), key.into(), listed));
        self.settle();
    }

    /// What listings know of by now.
    pub(crate) fn listed(&mut self) -> &BTreeMap<String, Listed> {
        self.settle();
        &self.listed
    }

    fn settle(&mut self) {
        let delay = self.conduct.listing_delay;
        while self.unlisted.front().is_some_and(|it| delay <= it.0.elapsed()) {
            let Some((_, key, listed)) = self.unlisted.pop_front() else { break };
            match listed {
                Some(listed) => drop(self.listed.insert(key, listed)),
                None => drop(self.listed.remove(&key)),
            }
        }
    }
}

/// What a write is answered with that comes sooner than the limit has it.
fn too_soon(status: u16) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::SlowDown, "one object is written too often");
    error.set_status_code(StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE));
    error
}

pub(crate) fn md5_of(bytes: &[u8]) -> String {
    use std::fmt::Write;

    let mut hex = String::with_capacity(32);
    for byte in Md5::digest(bytes) {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
