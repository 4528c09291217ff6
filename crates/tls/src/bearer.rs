//! The token that a client shows.

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

use crate::stale::StaleSince;

/// How long what was read of the file counts. A new token is shown so soon.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Most bytes of a token. What is longer fits no header that servers take.
const LEN_BYTES_MAX: u64 = 8 << 10;

/// Why there is no token. Its text is in none of these.
#[derive(Debug, thiserror::Error)]
pub enum BearerError {
    /// The file cannot be read.
    #[error("cannot read the token from {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What happened.
        #[source]
        source: io::Error,
    },
    /// The file holds no token.
    #[error("{} holds no token: one line of printable text is expected", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
    },
}

/// A file that holds a bearer token, read again when it changes. Clones share
/// what was read.
#[derive(Clone)]
pub struct BearerFile(Arc<Inner>);

struct Inner {
    path: PathBuf,
    held: Mutex<Held>,
    stale: StaleSince,
}

#[derive(Default)]
struct Held {
    looked_at: Option<Instant>,
    header: Option<HeaderValue>,
}

impl fmt::Debug for BearerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BearerFile").field(&self.0.path).finish()
    }
}

impl BearerFile {
    /// Nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Inner {
            path: path.into(),
            held: Mutex::default(),
            stale: StaleSince::default(),
        }))
    }

    /// Where the token is.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The value of `authorization` to send now. Marked as sensitive, so that it
    /// is shown by no `Debug` and kept in no header table.
    ///
    /// Reads the file at most once a second, which blocks for as long as a
    /// small local file takes. While a changed file cannot be used, the old
    /// token is.
    ///
    /// # Errors
    ///
    /// [`BearerError`] where there is no old one.
    pub fn authorization(&self) -> Result<HeaderValue, BearerError> {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_fresh = held.looked_at.is_some_and(|it| now < it + LOOK_INTERVAL);
        if let Some(header) = held.header.as_ref().filter(|_| is_fresh) {
            return Ok(header.clone());
        }
        held.looked_at = Some(now);
        match (self.read(), &held.header) {
            (Ok(header), _) => {
                held.header = Some(header.clone());
                Ok(header)
            }
            (Err(error), Some(header)) => {
                tracing::warn!(%error, "the old token is used");
                Ok(header.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    /// Since when the file holds no token that can be shown; `None` while all is
    /// well, as far as somebody looked.
    pub fn stale_since(&self) -> Option<Instant> {
        self.0.stale.get()
    }

    /// Looks at the file now and every `interval`, until it is dropped: for those
    /// who ask [`BearerFile::stale_since`] where the token is seldom shown. What
    /// is shown stays what it is.
    pub async fn keep_fresh(self, interval: Duration) -> Infallible {
        let mut was_well = true;
        loop {
            let looked = self.read();
            if let Err(error) = &looked
                && was_well
            {
                tracing::error!(%error, "no token can be read; the old one is used, if there is one");
            }
            was_well = looked.is_ok();
            tokio::time::sleep(interval).await;
        }
    }

    fn read(&self) -> Result<HeaderValue, BearerError> {
        let found = read(&self.0.path);
        self.0.stale.note(found.is_ok());
        found
    }

    /// Whether the file holds another token than `shown` by now. Looks at once:
    /// for a token that was refused.
    pub fn has_another_than(&self, shown: &HeaderValue) -> bool {
        let mut held = self.0.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.looked_at = Some(Instant::now());
        match self.read() {
            Ok(header) => {
                let is_another = header != *shown;
                held.header = Some(header);
                is_another
            }
            Err(_) => held.header.as_ref().is_some_and(|it| it != shown),
        }
    }
}

fn read(path: &Path) -> Result<HeaderValue, BearerError> {
    let failed = |source| BearerError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let mut file = File::open(path).map_err(failed)?.take(LEN_BYTES_MAX);
    file.read_to_string(&mut text).map_err(failed)?;
    let token = text.trim();
    let is_token = !token.is_empty() && token.bytes().all(|it| it.is_ascii_graphic());
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    match header {
        Ok(mut header) if is_token => {
            header.set_sensitive(true);
            Ok(header)
        }
        Ok(_) | Err(_) => Err(BearerError::Content { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bearer: &BearerFile) -> String {
        bearer.authorization().unwrap().to_str().unwrap().to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_token_is_shown_within_a_second_and_a_bad_file_keeps_the_old_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\n").unwrap();
        let bearer = BearerFile::new(file.path());
        assert_eq!(shown(&bearer), "Bearer one");

        std::fs::write(file.path(), "two").unwrap();
        assert_eq!(shown(&bearer), "Bearer one");
        tokio::time::advance(LOOK_INTERVAL).await;
        assert_eq!(shown(&bearer), "Bearer two");

        assert_eq!(bearer.stale_since(), None);
        std::fs::write(file.path(), "not one line\nof text").unwrap();
        tokio::time::advance(LOOK_INTERVAL).await;
        assert_eq!(shown(&bearer), "Bearer two");
        assert!(bearer.stale_since().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_refused_is_looked_for_again_at_once() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one").unwrap();
        let bearer = BearerFile::new(file.path());
        let refused = bearer.authorization().unwrap();
        assert!(!bearer.has_another_than(&refused));

        std::fs::write(file.path(), "two").unwrap();
        assert!(bearer.has_another_than(&refused));
        assert_eq!(shown(&bearer), "Bearer two");
    }

    #[tokio::test]
    async fn what_is_no_token_is_refused_and_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for text in ["", "\n", "two words", "s\u{e9}cret"] {
            std::fs::write(file.path(), text).unwrap();
            let error = BearerFile::new(file.path()).authorization().unwrap_err();
            assert!(matches!(error, BearerError::Content { .. }), "{error}");
        }
        std::fs::write(file.path(), "s3cret").unwrap();
        let bearer = BearerFile::new(file.path());
        let header = bearer.authorization().unwrap();
        assert!(!format!("{bearer:?} {header:?}").contains("s3cret"));
        assert!(BearerFile::new("/nowhere/token").authorization().is_err());
    }
}
