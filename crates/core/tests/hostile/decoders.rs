//! Every decoder of a stored object, as a function of bytes. The fuzz targets
//! (`fuzz/`) are made of the same functions.

use bytes::Bytes;
use headwater_core::format::{
    archive, change, chunk, head, receipts, record, request, segment, snapshot, snapshot_page,
};
use headwater_core::hash::ContentHash;

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

/// A head of these bytes with their checksum at its end, as whoever writes heads
/// can make one: what stands behind the comparison is reached as well.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    const SEAL_BYTES: usize = r#","checksum":"blake3:"}"#.len() + 64;
    let object = &bytes[..bytes.len().saturating_sub(SEAL_BYTES)];
    let checksum = ContentHash::of(&[object, b"}"].concat()).to_hex();
    [object, format!(r#","checksum":"blake3:{checksum}"}}"#).as_bytes()].concat()
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
    Decoder { name: "sealed head", decode: |it| done(head::decode(&sealed(it))) },
];

/// Decodes `bytes` by the decoder of that name.
pub(crate) fn run(name: &str, bytes: &[u8]) {
    let decoder = DECODERS.iter().find(|it| it.name == name);
    let Some(decoder) = decoder else { panic!("there is no decoder {name}") };
    // Refusing is as good as reading; only a panic is not.
    let refused = (decoder.decode)(bytes).err();
    assert!(refused.is_none_or(|it| !it.is_empty()), "{name} does not say what is wrong");
}
