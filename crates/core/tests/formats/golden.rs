//! Golden files: `tests/golden/v1`. They hold for ever what format 1 looks
//! like; a build that cannot read them cannot read its users' buckets.
//!
//! `HEADWATER_UPDATE_GOLDEN=1 cargo test -p headwater-core --test formats`
//! writes them anew. Do that for a new file only: where an old one changes, the
//! format has, and needs a number of its own.

use std::path::PathBuf;

use super::KINDS;

fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/golden/v1", file].iter().collect()
}

#[test]
fn golden_files_decode_to_the_samples_and_samples_encode_to_them() {
    for kind in KINDS {
        let bytes = (kind.encode_sample)();
        if std::env::var("HEADWATER_UPDATE_GOLDEN").is_ok_and(|it| it == "1") {
            std::fs::write(path(kind.file), &bytes).unwrap();
        }
        let golden = std::fs::read(path(kind.file)).expect(kind.file);
        assert!((kind.is_sample)(golden.clone().into()), "{} is read differently", kind.file);
        assert!(golden == bytes, "{} is written differently", kind.file);
    }
    let found = std::fs::read_dir(path("")).unwrap().count();
    assert_eq!(found, KINDS.len(), "every golden file is of some kind");
}
