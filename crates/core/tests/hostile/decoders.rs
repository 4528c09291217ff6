//! Every decoder of a stored object, as a function of bytes. The fuzz targets
//! (`fuzz/`) are made of the same functions.

use bytes::Bytes;
use headwater_core::format::{
    archive, change, chunk, head, receipts, record, request, segment, snapshot, snapshot_page,
};

/// One decoder.
pub(crate) struct Decoder {
    /// The kind of object.
    pub(crate) name: &'static str,
    /// Decodes; what is refused is refused in words.
    pub(crate) decode: fn(&[u8]) -> Result<(), String>,
}

fn done<T, E: ToString>(result: Result<T, E>) -> Result<(), String> {
    result.map(drop).map_err(|it| it.to_string())
}

fn own(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

/// All of them.
pub(crate) const DECODERS: &[Decoder] = &[
    Decoder { name: "head", decode: |it| done(head::decode(it)) },
    Decoder { name: "record", decode: |it| done(record::decode(it)) },
    Decoder { name: "change", decode: |it| done(change::decode(own(it))) },
    Decoder { name: "segment", decode: |it| done(segment::decode(own(it))) },
    Decoder { name: "snapshot", decode: |it| done(snapshot::decode(own(it))) },
    Decoder { name: "page", decode: |it| done(snapshot_page::decode(own(it))) },
    Decoder { name: "chunk", decode: |it| done(chunk::decode_envelope(&own(it))) },
    Decoder { name: "block", decode: |it| done(chunk::decode_block(own(it))) },
    Decoder { name: "receipts", decode: |it| done(receipts::decode(own(it))) },
    Decoder { name: "request", decode: |it| done(request::decode(own(it))) },
    Decoder { name: "archive", decode: |it| done(archive::decode(own(it))) },
];

/// Decodes `bytes` by the decoder of that name.
pub(crate) fn run(name: &str, bytes: &[u8]) {
    let decoder = DECODERS.iter().find(|it| it.name == name);
    let Some(decoder) = decoder else { panic!("there is no decoder {name}") };
    // Refusing is as good as reading; only a panic is not.
    let refused = (decoder.decode)(bytes).err();
    assert!(refused.is_none_or(|it| !it.is_empty()), "{name} does not say what is wrong");
}
