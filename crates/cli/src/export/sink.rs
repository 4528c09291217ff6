//! Where exported lines go.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use headwater_client::Entry;

use super::checkpoint::Checkpoint;
use crate::durable::{beside, rename};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::ndjson;
use crate::output::Output;

/// Bytes between two checkpoints. A sync of 32 MiB takes about as long as
/// reading as much does.
const CHECKPOINT_BYTES: u64 = 32 << 20;

/// Where lines go, and how many went there.
pub(super) struct Sink<'a> {
    target: Target<'a>,
    entries: u64,
    bytes: u64,
    /// Lines of one page.
    lines: Vec<u8>,
}

enum Target<'a> {
    Stdout(&'a mut Output),
    File(Partial),
}

/// A file in the making.
struct Partial {
    file: File,
    staged: PathBuf,
    output: PathBuf,
    checkpoint_bytes: u64,
}

impl<'a> Sink<'a> {
    pub(super) fn stdout(output: &'a mut Output) -> Self {
        Self::new(Target::Stdout(output), 0, 0)
    }

    /// A new file, which becomes `output` at the end.
    pub(super) fn file(output: &Path) -> Result<Self, Failed> {
        Checkpoint::remove(output)?;
        let staged = staged(output);
        let file =
            File::create(&staged).map_err(|error| Failed::file("create", &staged, &error))?;
        let output = output.to_owned();
        let partial = Partial { file, staged, output, checkpoint_bytes: 0 };
        Ok(Self::new(Target::File(partial), 0, 0))
    }

    /// The file of an interrupted export, cut to what the checkpoint counts.
    pub(super) fn resume(output: &Path, checkpoint: &Checkpoint) -> Result<Self, Failed> {
        let staged = staged(output);
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).open(&staged)?;
            let size_bytes = file.metadata()?.len();
            if size_bytes < checkpoint.bytes {
                let rule = format!("{size_bytes} bytes of {}", checkpoint.bytes);
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, rule));
            }
            file.set_len(checkpoint.bytes)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(|error| {
            Failed::new(Exit::Unexpected, format!("cannot go on in {}: {error}", staged.display()))
                .advise("run it without --resume")
        })?;
        let output = output.to_owned();
        let partial = Partial { file, staged, output, checkpoint_bytes: checkpoint.bytes };
        Ok(Self::new(Target::File(partial), checkpoint.entries, checkpoint.bytes))
    }

    fn new(target: Target<'a>, entries: u64, bytes: u64) -> Self {
        Self { target, entries, bytes, lines: Vec::new() }
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn write(&mut self, entries: &[Entry]) -> Result<(), Failed> {
        self.lines.clear();
        for entry in entries {
            ndjson::write(&mut self.lines, &entry.key, &entry.value);
        }
        match &mut self.target {
            Target::Stdout(output) => output.raw(&self.lines)?,
            Target::File(partial) => partial
                .file
                .write_all(&self.lines)
                .map_err(|error| Failed::file("write", &partial.staged, &error))?,
        }
        self.entries += entries.len() as u64;
        self.bytes += self.lines.len() as u64;
        Ok(())
    }

    /// Records the checkpoint, where it is time for one.
    pub(super) fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), Failed> {
        let Target::File(partial) = &mut self.target else { return Ok(()) };
        let is_first = partial.checkpoint_bytes == 0;
        if !is_first && checkpoint.bytes < partial.checkpoint_bytes + CHECKPOINT_BYTES {
            return Ok(());
        }
        partial.file.sync_data().map_err(|error| Failed::file("sync", &partial.staged, &error))?;
        checkpoint.save(&partial.output)?;
        partial.checkpoint_bytes = checkpoint.bytes;
        Ok(())
    }

    /// Everything is written: the file takes its name.
    pub(super) fn complete(&mut self) -> Result<(), Failed> {
        let Target::File(partial) = &mut self.target else { return Ok(()) };
        let finish = || -> io::Result<()> {
            partial.file.sync_all()?;
            rename(&partial.staged, &partial.output)
        };
        finish().map_err(|error| Failed::file("write", &partial.output, &error))?;
        Checkpoint::remove(&partial.output)
    }
}

fn staged(output: &Path) -> PathBuf {
    beside(output, ".headwater-export")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use headwater_client::{HistoryId, KeyRange};

    use super::*;

    fn entry(key: &'static str) -> Entry {
        Entry { key: key.into(), value: "v".into(), version: 1 }
    }

    fn checkpoint(sink: &Sink<'_>, key: &'static str) -> Checkpoint {
        Checkpoint {
            history: "h".to_owned(),
            history_id: HistoryId::new("0".repeat(32)).unwrap(),
            state_version: 1,
            range: KeyRange::all(),
            entries: sink.entries(),
            bytes: sink.bytes(),
            last_key: key.into(),
        }
    }

    #[test]
    fn a_file_appears_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        fs::write(&output, "old").unwrap();
        let mut sink = Sink::file(&output).unwrap();
        sink.write(&[entry("a")]).unwrap();
        let first = checkpoint(&sink, "a");
        sink.checkpoint(&first).unwrap();
        // Written, and not counted by a checkpoint: it is written again.
        sink.write(&[entry("b")]).unwrap();
        drop(sink);
        assert_eq!(fs::read_to_string(&output).unwrap(), "old");

        let loaded = Checkpoint::load(&output, "h", &KeyRange::all()).unwrap().unwrap();
        let mut sink = Sink::resume(&output, &loaded).unwrap();
        sink.write(&[entry("b"), entry("c")]).unwrap();
        sink.complete().unwrap();

        let keys: Vec<_> = fs::read_to_string(&output)
            .unwrap()
            .lines()
            .map(|it| ndjson::parse(it.as_bytes()).unwrap().0)
            .collect();
        assert_eq!(keys, ["a", "b", "c"]);
        assert_eq!((sink.entries(), sink.bytes()), (3, fs::metadata(&output).unwrap().len()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_shorter_than_its_checkpoint_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out");
        let mut sink = Sink::file(&output).unwrap();
        sink.write(&[entry("a")]).unwrap();
        let counted = Checkpoint { bytes: 1_000, ..checkpoint(&sink, "a") };

        assert!(Sink::resume(&output, &counted).is_err());
    }
}
