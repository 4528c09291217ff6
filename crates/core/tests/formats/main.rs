//! The stored bytes: what is written reads back, golden files of every format
//! version stay readable, and nothing damaged is taken for something else.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot set up has failed")]

mod damage;
mod golden;
mod round_trip;
mod samples;

use std::path::Path;

use bytes::Bytes;
use headwater_core::format::head::HeadDecodeError;
use headwater_core::format::{
    self, DecodeError, archive, change, chunk, receipts, record, request, segment, snapshot,
    snapshot_page,
};

/// Why an object was refused.
#[derive(Debug, PartialEq, Eq)]
enum Refusal {
    TooNew(u64),
    Other(String),
}

impl From<DecodeError> for Refusal {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::TooNew { found } => Self::TooNew(found.into()),
            DecodeError::Malformed { what } => Self::Other(what.into()),
        }
    }
}

impl From<HeadDecodeError> for Refusal {
    fn from(error: HeadDecodeError) -> Self {
        match error {
            HeadDecodeError::TooNew { found } => Self::TooNew(found),
            HeadDecodeError::Malformed(_)
            | HeadDecodeError::Hash { .. }
            | HeadDecodeError::Id { .. }
            | HeadDecodeError::Address(_)
            | HeadDecodeError::Pin { .. }
            | HeadDecodeError::Name(_)
            | HeadDecodeError::Key(_)
            | HeadDecodeError::Inline { .. }
            | HeadDecodeError::Invariant(_) => Self::Other(error.to_string()),
        }
    }
}

/// One kind of stored object.
struct Kind {
    /// Its golden file.
    file: &'static str,
    /// The bytes of its sample.
    encode_sample: fn() -> Vec<u8>,
    /// Whether bytes decode to exactly the sample.
    is_sample: fn(Bytes) -> bool,
    /// Decodes, and encodes again.
    again: fn(Bytes) -> Result<Vec<u8>, Refusal>,
}

impl Kind {
    fn is_json(&self) -> bool {
        Path::new(self.file).extension().is_some_and(|it| it == "json")
    }
}

const KINDS: &[Kind] = &[
    Kind {
        file: "head.json",
        encode_sample: || format::head::encode(&samples::head()),
        is_sample: |it| format::head::decode(&it).unwrap() == samples::head(),
        again: |it| Ok(format::head::encode(&format::head::decode(&it)?)),
    },
    Kind {
        file: "head-with-address.json",
        encode_sample: || format::head::encode(&samples::head_with_address()),
        is_sample: |it| format::head::decode(&it).unwrap() == samples::head_with_address(),
        again: |it| Ok(format::head::encode(&format::head::decode(&it)?)),
    },
    Kind {
        file: "change.bin",
        encode_sample: || change::encode(&samples::change()),
        is_sample: |it| change::decode(it).unwrap() == samples::change(),
        again: |it| Ok(change::encode(&change::decode(it)?)),
    },
    Kind {
        file: "segment.bin",
        encode_sample: || segment::encode(&samples::segment()),
        is_sample: |it| segment::decode(it).unwrap() == samples::segment(),
        again: |it| Ok(segment::encode(&segment::decode(it)?)),
    },
    Kind {
        file: "snapshot.bin",
        encode_sample: || snapshot::encode(&samples::snapshot()),
        is_sample: |it| snapshot::decode(it).unwrap() == samples::snapshot(),
        again: |it| Ok(snapshot::encode(&snapshot::decode(it)?)),
    },
    Kind {
        file: "snapshot-in-pages.bin",
        encode_sample: || snapshot::encode(&samples::snapshot_in_pages()),
        is_sample: |it| snapshot::decode(it).unwrap() == samples::snapshot_in_pages(),
        again: |it| Ok(snapshot::encode(&snapshot::decode(it)?)),
    },
    Kind {
        file: "page.bin",
        encode_sample: || snapshot_page::encode(&samples::chunks()),
        is_sample: |it| snapshot_page::decode(it).unwrap() == samples::chunks(),
        again: |it| Ok(snapshot_page::encode(&snapshot_page::decode(it)?)),
    },
    Kind {
        file: "chunk.bin",
        encode_sample: || encode_chunk(&samples::entries()),
        is_sample: |it| decode_chunk(&it).unwrap() == samples::entries(),
        again: |it| Ok(encode_chunk(&decode_chunk(&it)?)),
    },
    Kind {
        file: "receipts.bin",
        encode_sample: || receipts::encode(&samples::receipts()),
        is_sample: |it| receipts::decode(it).unwrap() == samples::receipts(),
        again: |it| Ok(receipts::encode(&receipts::decode(it)?)),
    },
    Kind {
        file: "archive.bin",
        encode_sample: || archive::encode(&samples::archive()),
        is_sample: |it| archive::decode(it).unwrap() == samples::archive(),
        again: |it| Ok(archive::encode(&archive::decode(it)?)),
    },
    Kind {
        file: "request.bin",
        encode_sample: || request::encode(&samples::request()),
        is_sample: |it| request::decode(it).unwrap() == samples::request(),
        again: |it| Ok(request::encode(&request::decode(it)?)),
    },
    Kind {
        file: "record.json",
        encode_sample: || record::encode(&samples::record()),
        is_sample: |it| record::decode(&it).unwrap() == samples::record(),
        again: |it| Ok(record::encode(&record::decode(&it)?)),
    },
];

fn encode_chunk(entries: &[chunk::ChunkEntry]) -> Vec<u8> {
    let block = chunk::encode_block(entries);
    chunk::encode_envelope(chunk::Codec::Plain, block.len(), &block)
}

fn decode_chunk(bytes: &Bytes) -> Result<Vec<chunk::ChunkEntry>, DecodeError> {
    let envelope = chunk::decode_envelope(bytes)?;
    match envelope.codec {
        chunk::Codec::Plain => chunk::decode_block(envelope.payload),
        // A damaged codec is found out by the decompressor, which is not here.
        chunk::Codec::Zstd => Err(DecodeError::Malformed { what: "not a zstd frame" }),
    }
}
