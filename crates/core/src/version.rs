//! The two counters of a history, kept apart by type.

use core::fmt;

/// Counts accepted transitions of the application state.
///
/// Advances by one per accepted change entry and never for maintenance; compare
/// [`Revision`], which advances on every head replacement. Version 0 is the
/// state of a new, empty history. One version may hold many operations: those
/// of one batch, each at its own position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateVersion(u64);

impl StateVersion {
    /// The state of a new history.
    pub const ZERO: Self = Self(0);

    /// Takes a stored number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number as stored.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The version that the next accepted change gets.
    ///
    /// # Panics
    ///
    /// After 2^64 - 1 changes. At 1,000 changes a second that is 580 million
    /// years, so the sum is checked and not carried in the signature.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(number) => Self(number),
            None => panic!("state version overflow"),
        }
    }

    /// How many versions lie between `earlier` (exclusive) and this one
    /// (inclusive); 0 when `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for StateVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// Counts replacements of the head object, maintenance included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// The revision of a new history's first head.
    pub const FIRST: Self = Self(1);

    /// Takes a stored number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number as stored.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision of the head that replaces this one.
    ///
    /// # Panics
    ///
    /// After 2^64 - 1 replacements; see [`StateVersion::next`].
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.checked_add(1) {
            Some(number) => Self(number),
            None => panic!("revision overflow"),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}
