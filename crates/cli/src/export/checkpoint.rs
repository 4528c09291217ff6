//! How far an export has come.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use headwater_client::{HistoryId, KeyRange, Token};
use serde::{Deserialize, Serialize};

use crate::durable::{beside, replace};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::field;

/// The only format so far.
const FORMAT: u64 = 1;

/// Largest checkpoint that is read: three keys and some numbers.
const SIZE_BYTES_MAX: u64 = 64 << 10;

/// How far an export has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) history: String,
    pub(super) history_id: HistoryId,
    pub(super) state_version: u64,
    /// What the whole export is of.
    pub(super) range: KeyRange,
    /// Written so far, and synced.
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) last_key: Bytes,
}

/// Keys are base64 here whatever they hold.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Stored {
    format: u64,
    history: String,
    history_id: String,
    state_version: u64,
    start_base64: String,
    end_base64: String,
    entries: u64,
    bytes: u64,
    last_key_base64: String,
}

impl Checkpoint {
    /// What the rest has to be read from.
    pub(super) fn token(&self) -> Token {
        Token { history_id: self.history_id.clone(), state_version: self.state_version }
    }

    /// The keys behind it.
    pub(super) fn rest(&self, range: &KeyRange) -> KeyRange {
        let mut start = self.last_key.to_vec();
        // The first key after the last one.
        start.push(0);
        KeyRange::new(start, range.end.clone())
    }

    /// The checkpoint of an export to `output` of the same range of the same
    /// history. None where there is none, or it is of something else.
    pub(super) fn load(
        output: &Path,
        history: &str,
        range: &KeyRange,
    ) -> Result<Option<Self>, Failed> {
        let path = path(output);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failed::file("read", &path, &error)),
        };
        let mut json = Vec::new();
        file.take(SIZE_BYTES_MAX)
            .read_to_end(&mut json)
            .map_err(|error| Failed::file("read", &path, &error))?;
        // One that cannot be read is of no use, and costs beginning again.
        Ok(Self::from_json(&json).filter(|it| it.history == history && it.range == *range))
    }

    pub(super) fn save(&self, output: &Path) -> Result<(), Failed> {
        let json = self.to_json();
        let json = json.map_err(|it| Failed::new(Exit::Unexpected, it.to_string()))?;
        let path = path(output);
        replace(&path, &json).map_err(|error| Failed::file("write", &path, &error))
    }

    /// Removes the checkpoint of a finished export.
    pub(super) fn remove(output: &Path) -> Result<(), Failed> {
        let path = path(output);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Failed::file("remove", &path, &error)),
        }
    }

    fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(&Stored {
            format: FORMAT,
            history: self.history.clone(),
            history_id: self.history_id.to_string(),
            state_version: self.state_version,
            start_base64: field::encode(&self.range.start),
            end_base64: field::encode(&self.range.end),
            entries: self.entries,
            bytes: self.bytes,
            last_key_base64: field::encode(&self.last_key),
        })
    }

    fn from_json(json: &[u8]) -> Option<Self> {
        let stored: Stored = serde_json::from_slice(json).ok()?;
        let start = field::decode(&stored.start_base64)?;
        let end = field::decode(&stored.end_base64)?;
        (stored.format == FORMAT).then_some(Self {
            history: stored.history,
            history_id: HistoryId::new(stored.history_id).ok()?,
            state_version: stored.state_version,
            range: KeyRange::new(start, end),
            entries: stored.entries,
            bytes: stored.bytes,
            last_key: field::decode(&stored.last_key_base64)?,
        })
    }
}

fn path(output: &Path) -> PathBuf {
    beside(output, ".headwater-export.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            history: "h".to_owned(),
            history_id: HistoryId::new("0".repeat(32)).unwrap(),
            state_version: 7,
            range: KeyRange::prefix(vec![0xff, 0]),
            entries: 3,
            bytes: 90,
            last_key: vec![0xff, 0, 1].into(),
        }
    }

    #[test]
    fn what_is_saved_is_loaded_for_the_same_export() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let load = |history: &str, range| Checkpoint::load(&output, history, &range).unwrap();
        assert_eq!(load("h", checkpoint().range), None);

        checkpoint().save(&output).unwrap();

        assert_eq!(load("h", checkpoint().range), Some(checkpoint()));
        assert_eq!(load("other", checkpoint().range), None);
        assert_eq!(load("h", KeyRange::all()), None);
        Checkpoint::remove(&output).unwrap();
        Checkpoint::remove(&output).unwrap();
        assert_eq!(load("h", checkpoint().range), None);
    }

    #[test]
    fn what_cannot_be_read_is_as_good_as_none() {
        assert_eq!(Checkpoint::from_json(b"{"), None);
        let json = String::from_utf8(checkpoint().to_json().unwrap()).unwrap();
        let newer = json.replace("\"format\": 1", "\"format\": 2");
        assert_eq!(Checkpoint::from_json(newer.as_bytes()), None);
    }

    #[test]
    fn the_rest_begins_behind_the_last_key() {
        let rest = checkpoint().rest(&checkpoint().range);

        assert!(!rest.contains(&[0xff, 0, 1]));
        assert!(rest.contains(&[0xff, 0, 1, 0]));
        assert_eq!(rest.end, checkpoint().range.end);
    }
}
