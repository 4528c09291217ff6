//! Seeds that once found a fault, kept as tests.

use clap::ValueEnum as _;

use crate::plan::Kind;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// How its plan is drawn.
    pub kind: Kind,
    /// It.
    pub seed: u64,
    /// What it found.
    pub found: &'static str,
}

/// All of them, as `seeds.txt` has them.
///
/// # Panics
///
/// When a line of that file is none.
pub fn all() -> Vec<Kept> {
    let lines = include_str!("../seeds.txt").lines().map(str::trim);
    let lines = lines.filter(|it| !it.is_empty() && !it.starts_with('#'));
    let parse = |line: &'static str| {
        let (kind, rest) = line.split_once(' ')?;
        let (seed, found) = rest.trim_start().split_once(' ')?;
        let kind = Kind::from_str(kind, false).ok()?;
        Some(Kept { kind, seed: seed.parse().ok()?, found: found.trim_start() })
    };
    lines.map(|it| parse(it).unwrap_or_else(|| panic!("no kind, seed and reason: {it}"))).collect()
}
