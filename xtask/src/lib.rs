//! Chores of the repository: what is generated, and checks that no compiler
//! makes.
//!
//! In here: the generator of the wire code ([`codegen`]) and the bill of materials
//! ([`sbom`]), each a command of `cargo run -p xtask --`, and tests (`cargo test -p xtask`) on
//! the shape of the repository. Not in here: anything that a user's build needs.

pub mod codegen;
pub mod sbom;
