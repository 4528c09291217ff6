//! The input: what it is, and its lines.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use super::identity::ImportId;
use super::line::{self, Line, Lines};
use crate::exit::Exit;
use crate::failed::Failed;
use crate::ndjson::LineError;

/// Lines read ahead of the import, at most.
const LINES_AHEAD_MAX: usize = 16;

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
            .advise("put back what it held, and run it again; anything else is another input")
    }

    /// Line `number` is not an entry.
    pub(super) fn malformed(&self, number: u64, error: &LineError) -> Failed {
        Failed::usage(error.to_string()).at(&self.place(number))
    }

    pub(super) fn place(&self, line: u64) -> String {
        format!("{}, line {line}", self.name())
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

    /// Reads a file once to know what it is, and that all of its lines can be
    /// sent: what a run has sent of a file that is then mended is of another
    /// input, and would be applied again.
    pub(super) async fn identify(&self) -> Result<Identified, Failed> {
        let Self::File(path) = self.clone() else {
            return Ok(Identified { source: Self::Stdin, content: None });
        };
        let source = self.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let failed = |error| Failed::file("read", &path, &error);
            if !fs::metadata(&path).map_err(failed)?.is_file() {
                return Err(source.read_once());
            }
            source.measure(File::open(&path).map_err(failed)?)
        });
        let content = reading.await.map_err(|_| stopped())??;
        Ok(Identified { source: self.clone(), content: Some(content) })
    }

    /// A pipe, a device or a folder.
    fn read_once(&self) -> Failed {
        Failed::usage(format!("{} is not a regular file", self.name()))
            .advise("what can be read only once is imported from standard input, as `-`")
    }

    fn measure(&self, file: File) -> Result<Content, Failed> {
        let mut lines = Lines::new(self, file);
        while let Some(Line { number, bytes }) = lines.next()? {
            line::entry(number, &bytes).map_err(|error| {
                self.malformed(number, &error).advise("mend it, and run it again; nothing was sent")
            })?;
        }
        Ok(Content { id: lines.id(), lines: lines.count(), size_bytes: lines.size_bytes() })
    }

    /// Reads lines on a thread of its own, which ends once nobody takes them.
    pub(super) fn lines(self) -> mpsc::Receiver<Event> {
        let (sender, receiver) = mpsc::channel(LINES_AHEAD_MAX);
        tokio::task::spawn_blocking(move || match &self {
            Self::File(path) => match File::open(path) {
                Ok(file) => send_lines(Lines::new(&self, file), &sender),
                Err(error) => {
                    let failed = Failed::file("read", path, &error);
                    // Nobody waits for it any more, or it arrives.
                    drop(sender.blocking_send(Event::Failed(failed)));
                }
            },
            Self::Stdin => send_lines(Lines::new(&self, io::stdin().lock()), &sender),
        });
        receiver
    }
}

fn send_lines(mut lines: Lines<'_, impl Read>, sender: &mpsc::Sender<Event>) {
    loop {
        let event = match lines.next() {
            Ok(Some(line)) => Event::Line(line),
            Ok(None) => Event::End(lines.id()),
            Err(failed) => Event::Failed(failed),
        };
        let is_last = !matches!(event, Event::Line(_));
        if sender.blocking_send(event).is_err() || is_last {
            return;
        }
    }
}

fn stopped() -> Failed {
    Failed::new(Exit::Unexpected, "reading the input was cut off")
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::ndjson::LINE_BYTES_MAX;

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

    const ENTRY: &str = "{\"key\":\"k\",\"value\":\"\"}";

    #[tokio::test]
    async fn both_passes_see_the_same_lines() {
        for (shape, count) in
            [("", 0), ("a", 1), ("a\n", 1), ("a\n\na", 3), ("\n", 1), ("a\r\na\n\n", 3)]
        {
            let content = shape.replace('a', ENTRY);

            let (measured, lines, end) = read(content.as_bytes()).await;

            assert_eq!(measured.lines, count, "{shape:?}");
            assert_eq!(lines.len() as u64, count, "{shape:?}");
            assert_eq!(measured.size_bytes, content.len() as u64);
            assert_eq!(end, Some(measured.id));
            assert_eq!(measured.id, ImportId::new(blake3::hash(content.as_bytes()).into()));
            let numbers: Vec<_> = lines.iter().map(|it| it.0).collect();
            assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
        }
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused_and_not_held() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"\n").unwrap();
        file.write_all(&vec![b'x'; LINE_BYTES_MAX + 100]).unwrap();
        let source = Source::new(file.path());

        let identified = source.identify().await.unwrap_err();
        let mut events = source.lines();
        let first = events.recv().await;
        let second = events.recv().await;

        assert!(matches!(first, Some(Event::Line(_))), "{first:?}");
        let Some(Event::Failed(read)) = second else { panic!("{second:?}") };
        assert!(events.recv().await.is_none());
        for refused in [identified, read] {
            let text = refused.to_text();
            assert!(text.contains("line 2: the line is longer than"), "{text}");
        }
    }

    #[tokio::test]
    async fn the_longest_line_is_read() {
        let mut content = ENTRY.as_bytes().to_vec();
        content.resize(LINE_BYTES_MAX, b' ');
        content.push(b'\n');

        let (_, lines, end) = read(&content).await;

        assert_eq!(lines[0].1.len(), LINE_BYTES_MAX);
        assert!(end.is_some());
    }
}
