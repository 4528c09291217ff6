//! What must hold in every state, and how a state says that it does not.

/// A promise of section 8 of docs/protocol.md, or what it rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// No operation is in the history twice.
    AtMostOnce,
    /// What was acknowledged is in every later head.
    Kept,
    /// Receipts say what was applied, and what was applied was asked for.
    ReceiptsTrue,
    /// "Not applied" is never said of an operation that is applied, then or
    /// later.
    NotApplied,
    /// A negative answer was true between question and answer, of a head that
    /// was published.
    NegativesTrue,
    /// No head reaches an object that is not there.
    NothingMissing,
    /// A strong read sees what was acknowledged before it began, and does not
    /// go back.
    StrongReads,
    /// A reader sees whole versions.
    WholeVersions,
    /// Revision, version, boundaries and epoch never fall.
    NothingFalls,
    /// A former owner's operations are not accepted after the epoch was raised.
    Fenced,
    /// No publisher stops because it was about to publish a bad head.
    KeepsGoing,
    /// From every state a fair run answers everybody.
    Finishes,
}

impl Promise {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::AtMostOnce,
        Self::Kept,
        Self::ReceiptsTrue,
        Self::NotApplied,
        Self::NegativesTrue,
        Self::NothingMissing,
        Self::StrongReads,
        Self::WholeVersions,
        Self::NothingFalls,
        Self::Fenced,
        Self::KeepsGoing,
        Self::Finishes,
    ];

    /// The promise in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AtMostOnce => "an operation is applied at most once",
            Self::Kept => "an acknowledged operation is in every later head",
            Self::ReceiptsTrue => "receipts equal what was applied",
            Self::NotApplied => "`not applied` is not said of an applied operation",
            Self::NegativesTrue => "a negative answer was true after the question",
            Self::NothingMissing => "no head names a deleted object",
            Self::StrongReads => "a strong read misses nothing and does not go back",
            Self::WholeVersions => "a reader sees whole versions",
            Self::NothingFalls => "revision, version and boundaries never fall",
            Self::Fenced => "a former owner is fenced",
            Self::KeepsGoing => "no publisher stops itself",
            Self::Finishes => "from every state a fair run finishes",
        }
    }
}

/// A promise that was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// What was seen.
    pub what: String,
}

/// Fails with the promise unless `holds`.
///
/// # Errors
///
/// [`Broken`] with that promise.
pub fn ensure(holds: bool, promise: Promise, what: impl FnOnce() -> String) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { promise, what: what() }) }
}
