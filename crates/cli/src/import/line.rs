//! Lines of an input, and what one holds.

use std::io::{self, BufRead as _, BufReader, Read};

use bytes::Bytes;

use super::identity::ImportId;
use super::input::Source;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::ndjson::{self, LINE_BYTES_MAX, LineError};

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// What some editors begin a file with. It says nothing: JSON is UTF-8.
const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];

/// One line, counted from 1, without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) bytes: Bytes,
}

/// Reads lines, and hashes what it reads. Holds one line at a time.
pub(super) struct Lines<'a, R> {
    source: &'a Source,
    input: BufReader<R>,
    hasher: blake3::Hasher,
    count: u64,
    size_bytes: u64,
}

impl<'a, R: Read> Lines<'a, R> {
    pub(super) fn new(source: &'a Source, input: R) -> Self {
        let input = BufReader::with_capacity(READ_BYTES, input);
        Self { source, input, hasher: blake3::Hasher::new(), count: 0, size_bytes: 0 }
    }

    /// The next line. One that is too long is refused, and the rest of it is not
    /// read: nothing can follow.
    pub(super) fn next(&mut self) -> Result<Option<Line>, Failed> {
        let mut line = Vec::new();
        // With its newline, and one more byte to tell that it is longer.
        let limit = LINE_BYTES_MAX as u64 + 2;
        let mut limited = self.input.by_ref().take(limit);
        let read = limited.read_until(b'\n', &mut line).map_err(|it| self.unreadable(&it))?;
        if read == 0 {
            return Ok(None);
        }
        self.hasher.update(&line);
        self.count += 1;
        self.size_bytes += line.len() as u64;
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if LINE_BYTES_MAX < line.len() {
            let rule = format!("the line is longer than {LINE_BYTES_MAX} bytes");
            return Err(Failed::usage(rule).at(&self.source.place(self.count)));
        }
        Ok(Some(Line { number: self.count, bytes: line.into() }))
    }

    /// Lines read so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Bytes read so far.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Names an input that holds what was read so far.
    pub(super) fn id(&self) -> ImportId {
        ImportId::new(self.hasher.finalize().into())
    }

    fn unreadable(&self, error: &io::Error) -> Failed {
        Failed::new(Exit::Unexpected, format!("cannot read {}: {error}", self.source.name()))
    }
}

/// The key and value of line `number`; none where nothing is on it.
pub(super) fn entry(number: u64, bytes: &[u8]) -> Result<Option<(Bytes, Bytes)>, LineError> {
    let is_first = number == 1;
    let marked = bytes.strip_prefix(BYTE_ORDER_MARK).filter(|_| is_first);
    let text = marked.unwrap_or(bytes);
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    ndjson::parse(text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_begins_a_file_and_no_other_line() {
        let marked = "\u{feff}{\"key\":\"k\",\"value\":\"v\"}".as_bytes();

        assert_eq!(entry(1, marked).unwrap(), Some(("k".into(), "v".into())));
        assert!(entry(2, marked).is_err());
        assert_eq!(entry(1, BYTE_ORDER_MARK).unwrap(), None);
        assert_eq!(entry(2, b" \r").unwrap(), None);
    }
}
