//! Scans: a range in order, page by page, at one version.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::Stream;
use headwater_proto::v1;

use crate::call::timed;
use crate::client::read_service;
use crate::failure::Failure;
use crate::range::KeyRange;
use crate::read::{Consistency, Entry, Read, ReadError};
use crate::session::Session;

/// What to scan, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// Which keys.
    pub range: KeyRange,
    /// How fresh the first page must be. The others have its version.
    pub consistency: Consistency,
    /// From the last key to the first.
    pub reverse: bool,
    /// Leave out the values.
    pub keys_only: bool,
    /// Entries of one page at most; 0 means 1,000, the maximum is 10,000.
    pub page_size: u32,
}

impl From<KeyRange> for ScanOptions {
    fn from(range: KeyRange) -> Self {
        Self { range, ..Self::default() }
    }
}

/// A scan under way. It never begins again by itself: where a page's version is
/// gone, it ends with [`ReadError::VersionRetired`], so that what it gave is of
/// one version and without a gap.
#[derive(Debug)]
#[must_use = "a scan reads nothing until it is asked for a page"]
pub struct Scan {
    session: Session,
    options: ScanOptions,
    page_token: Bytes,
    version: Option<u64>,
    /// Who gave the last page, and has the version at hand.
    from: Option<SocketAddr>,
    is_done: bool,
}

impl Session {
    /// Begins a scan.
    pub fn scan(&self, options: impl Into<ScanOptions>) -> Scan {
        Scan {
            session: self.clone(),
            options: options.into(),
            page_token: Bytes::new(),
            version: None,
            from: None,
            is_done: false,
        }
    }
}

impl Scan {
    /// The next page; none after the last one. The first page may be empty.
    ///
    /// Cancel safe: a page whose read was dropped is read again by the next
    /// call.
    ///
    /// # Errors
    ///
    /// [`ReadError`]. Asking again asks for the same page.
    pub async fn next_page(&mut self) -> Result<Option<Read<Vec<Entry>>>, ReadError> {
        if self.is_done {
            return Ok(None);
        }
        let request = self.request();
        let call = self.session.client.to_replicas(self.from);
        let answer = call
            .run(|channel, time| {
                let request = timed(request.clone(), time);
                async move { read_service(channel).scan(request).await }
            })
            .await?;
        let stamp = self.session.stamp(answer.value.stamp)?;
        if self.version.is_some_and(|it| it != stamp.state_version) {
            return Err(Failure::malformed("a page is of another version than its scan").into());
        }
        self.version = Some(stamp.state_version);
        self.from = Some(answer.from);
        self.page_token = answer.value.next_page_token;
        self.is_done = self.page_token.is_empty();
        let value = answer.value.entries.into_iter().map(Entry::from).collect();
        Ok(Some(Read { value, stamp }))
    }

    /// The entries one by one. Ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Entry, ReadError>> + Send {
        let start = (self, Vec::new().into_iter());
        futures::stream::unfold(start, |(mut scan, mut page)| async move {
            loop {
                if let Some(entry) = page.next() {
                    return Some((Ok(entry), (scan, page)));
                }
                match scan.next_page().await {
                    Ok(Some(read)) => page = read.value.into_iter(),
                    Ok(None) => return None,
                    Err(error) => {
                        scan.is_done = true;
                        return Some((Err(error), (scan, page)));
                    }
                }
            }
        })
    }

    /// The version that is scanned; none before the first page.
    pub fn version(&self) -> Option<u64> {
        self.version
    }

    /// Who gave the last page.
    pub(crate) fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// Prefers this replica for the first page.
    pub(crate) fn preferring(mut self, from: Option<SocketAddr>) -> Self {
        self.from = from;
        self
    }

    fn request(&self) -> v1::ScanRequest {
        v1::ScanRequest {
            history: self.session.history.to_string(),
            consistency: Some(self.session.consistency(self.options.consistency)),
            range: Some(self.options.range.clone().into()),
            reverse: self.options.reverse,
            page_size: self.options.page_size,
            page_token: self.page_token.clone(),
            keys_only: self.options.keys_only,
            history_id: self.session.pinned_id(),
        }
    }
}
