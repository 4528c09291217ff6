//! The input: what it is, and its lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::mpsc;

use super::identity::ImportId;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::ndjson::LINE_BYTES_MAX;

/// Lines read ahead of the import, at most.
const LINES_AHEAD_MAX: usize = 16;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// Where lines come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Can be read again.
    File(PathBuf),
    /// Can be read once.
    Stdin,
}

/// An input that was looked at.
#[derive(Clone, Debug)]
pub(super) struct Identified {
    pub(super) source: Source,
    /// What a file holds; none for what can be read only once.
    pub(super) content: Option<Content>,
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) id: ImportId,
    pub(super) lines: u64,
    pub(super) size_bytes: u64,
}

/// One line, counted from 1, without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) bytes: Bytes,
}

/// What the reader says.
#[derive(Debug)]
pub(super) enum Event {
    Line(Line),
    /// No more lines. What was read, where it can be compared.
    End(ImportId),
    /// Nothing more can be read.
    Failed(Failed),
}

impl Source {
    pub(super) fn new(path: &Path) -> Self {
        if path == Path::new("-") { Self::Stdin } else { Self::File(path.to_owned()) }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Stdin => "standard input".to_owned(),
        }
    }

    /// It is not what it was when it was looked at.
    pub(super) fn changed(&self) -> Failed {
        Failed::usage(format!("{} was changed while it was read", self.name()))
    }

    /// It has fewer lines than an earlier run has settled.
    pub(super) fn shorter(&self) -> Failed {
        Failed::usage(format!("{} is shorter than in the earlier run", self.name()))
    }

    /// Its first lines are not those that an earlier run has settled.
    pub(super) fn begins_otherwise(&self) -> Failed {
        let name = self.name();
        Failed::usage(format!("{name} does not begin as it did in the earlier run"))
            .advise("name another state file with --state for another input")
    }

    /// Reads a file once to know what it is.
    pub(super) async fn identify(&self) -> Result<Identified, Failed> {
        let Self::File(path) = self.clone() else {
            return Ok(Identified { source: Self::Stdin, content: None });
        };
        let reading = tokio::task::spawn_blocking(move || {
            let content = File::open(&path).and_then(measure);
            content.map_err(|error| Failed::file("read", &path, &error))
        });
        let content = reading.await.map_err(|_| stopped())??;
        Ok(Identified { source: self.clone(), content: Some(content) })
    }

    /// Reads lines on a thread of its own, which ends once nobody takes them.
    pub(super) fn lines(self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(LINES_AHEAD_MAX);
        let name = self.name();
        tokio::task::spawn_blocking(move || match self {
            Self::File(path) => match File::open(&path) {
                Ok(file) => send_lines(file, &name, &sender),
                Err(error) => {
                    let failed = Failed::file("read", &path, &error);
                    // Nobody waits for it any more, or it arrives.
                    drop(sender.blocking_send(Event::Failed(failed)));
                }
            },
            Self::Stdin => send_lines(io::stdin().lock(), &name, &sender),
        });
        receiver
    }
}

fn measure(mut file: File) -> io::Result<Content> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    let (mut lines, mut size_bytes, mut last) = (0, 0, b'\n');
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        let bytes = &buffer[..read];
        hasher.update(bytes);
        lines += bytes.split(|&it| it == b'\n').count() as u64 - 1;
        size_bytes += read as u64;
        last = bytes[read - 1];
    }
    if last != b'\n' {
        lines += 1;
    }
    Ok(Content { id: ImportId::new(hasher.finalize().into()), lines, size_bytes })
}

fn send_lines(input: impl Read, name: &str, sender: &mpsc::Sender<Event>) {
    let mut input = BufReader::with_capacity(READ_BYTES, input);
    let mut hasher = blake3::Hasher::new();
    let mut number = 0;
    loop {
        number += 1;
        let event = match next_line(&mut input, &mut hasher) {
            Ok(Some(bytes)) if LINE_BYTES_MAX < bytes.len() => {
                let rule = format!("the line is longer than {LINE_BYTES_MAX} bytes");
                Event::Failed(Failed::usage(rule).at(&format!("{name}, line {number}")))
            }
            Ok(Some(bytes)) => Event::Line(Line { number, bytes: bytes.into() }),
            Ok(None) => Event::End(ImportId::new(hasher.finalize().into())),
            Err(error) => {
                let message = format!("cannot read {name}: {error}");
                Event::Failed(Failed::new(Exit::Unexpected, message))
            }
        };
        let is_last = !matches!(event, Event::Line(_));
        if sender.blocking_send(event).is_err() || is_last {
            return;
        }
    }
}

/// The next line without its newline; a line that is too long is cut one byte
/// past the limit.
fn next_line(input: &mut impl BufRead, hasher: &mut blake3::Hasher) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let limit = LINE_BYTES_MAX as u64 + 2;
    let read = input.take(limit).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    hasher.update(&line);
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line))
}

fn stopped() -> Failed {
    Failed::new(Exit::Unexpected, "reading the input was cut off")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    async fn read(content: &[u8]) -> (Content, Vec<(u64, Vec<u8>)>, Option<ImportId>) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let source = Source::new(file.path());
        let identified = source.identify().await.unwrap();
        let (mut lines, mut end) = (Vec::new(), None);
        let mut events = source.lines();
        while let Some(event) = events.recv().await {
            match event {
                Event::Line(line) => lines.push((line.number, line.bytes.to_vec())),
                Event::End(id) => end = Some(id),
                Event::Failed(failed) => lines.push((0, failed.to_text().into_bytes())),
            }
        }
        (identified.content.unwrap(), lines, end)
    }

    #[tokio::test]
    async fn both_passes_see_the_same_lines() {
        for (content, count) in
            [(&b""[..], 0), (b"a", 1), (b"a\n", 1), (b"a\n\nb", 3), (b"\n", 1), (b"a\r\nb\n\n", 3)]
        {
            let (measured, lines, end) = read(content).await;

            assert_eq!(measured.lines, count, "{content:?}");
            assert_eq!(lines.len() as u64, count, "{content:?}");
            assert_eq!(measured.size_bytes, content.len() as u64);
            assert_eq!(end, Some(measured.id));
            let numbers: Vec<_> = lines.iter().map(|it| it.0).collect();
            assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused_and_not_held() {
        let mut content = b"ok\n".to_vec();
        content.resize(LINE_BYTES_MAX + 100, b'x');

        let (_, lines, end) = read(&content).await;

        assert_eq!(lines.len(), 2);
        let refusal = String::from_utf8(lines[1].1.clone()).unwrap();
        assert!(refusal.contains("line 2: the line is longer than"), "{refusal}");
        assert_eq!(end, None);
    }

    #[tokio::test]
    async fn the_longest_line_is_read() {
        let mut content = vec![b'x'; LINE_BYTES_MAX];
        content.push(b'\n');

        let (_, lines, end) = read(&content).await;

        assert_eq!(lines[0].1.len(), LINE_BYTES_MAX);
        assert!(end.is_some());
    }
}
