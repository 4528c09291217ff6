//! What the process says when it ends.

use std::process::ExitCode;

/// How a command ended. Scripts depend on the numbers: none ever changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// Done: accepted, found, served, written.
    Done,
    /// Something that none of the others describes.
    Unexpected,
    /// The command or its input breaks a rule. Nothing was changed by the part
    /// that does.
    Usage,
    /// Something stands in the way: preconditions that do not hold, a history of
    /// that name, another owner. Nothing was changed.
    Rejected,
    /// Nobody can say any more whether it was applied.
    Unknown,
    /// It may have been applied; the same id, sent again, finds out.
    InDoubt,
    /// No such history, key, operation or version.
    NotFound,
    /// A server or the store did not answer in time, and nothing was applied.
    Unavailable,
    /// Stored data is damaged, or newer than this build.
    BadData,
    /// Done, and something was found that should be looked at.
    Warned,
    /// A check found no damage, and its budget ended it.
    Incomplete,
    /// Stopped by a signal.
    Interrupted,
}

/// The table of exit codes, for `--help`.
pub const EXIT_CODES: &str = "\
Exit codes:
    0  done: accepted, found, written
    1  unexpected: none of the following
    2  usage: the command, or its input, breaks a rule
    3  rejected: a precondition does not hold, the history exists already, or
       another owner has taken over; nothing was changed
    4  outcome unknown: the receipts that could tell are gone; look at the data
    5  in doubt: it may have been applied; the same operation id finds out
    6  not found: no such history, key, operation or version
    7  unavailable: no answer in time, and nothing was applied; try again
    8  bad data: a stored object is damaged, or newer than this build
    9  done, with warnings: doctor found something to look at, or
       `verify --strict` garbage or foreign objects, or `status` a
       process that is not ready
   10  incomplete: a budget ended `verify`; what was checked is sound
  130  interrupted";

impl Exit {
    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Unexpected => 1,
            Self::Usage => 2,
            Self::Rejected => 3,
            Self::Unknown => 4,
            Self::InDoubt => 5,
            Self::NotFound => 6,
            Self::Unavailable => 7,
            Self::BadData => 8,
            Self::Warned => 9,
            Self::Incomplete => 10,
            Self::Interrupted => 130,
        }
    }

    /// The word for `--json`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unexpected => "unexpected",
            Self::Usage => "usage",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
            Self::InDoubt => "inDoubt",
            Self::NotFound => "notFound",
            Self::Unavailable => "unavailable",
            Self::BadData => "badData",
            Self::Warned => "warned",
            Self::Incomplete => "incomplete",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_code_that_a_process_ends_with() {
        for exit in [
            Exit::Done,
            Exit::Unexpected,
            Exit::Usage,
            Exit::Rejected,
            Exit::Unknown,
            Exit::InDoubt,
            Exit::NotFound,
            Exit::Unavailable,
            Exit::BadData,
            Exit::Warned,
            Exit::Incomplete,
            Exit::Interrupted,
        ] {
            let line = format!("{:>5}  ", exit.code());
            assert!(EXIT_CODES.contains(&line), "{exit:?}");
        }
    }
}
