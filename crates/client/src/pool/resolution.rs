//! Asking for the addresses of all names of a role.
//!
//! # Invariants
//!
//! - What has been asked for is not asked for anew: it goes on while nobody waits
//!   for it, and whoever comes next waits for the rest. A resolver that takes
//!   longer than every caller would wait still comes to its end.
//! - Names do not wait for each other.
//! - A query that is lost is not waited for: another one goes out beside it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Unresolved;
use crate::address::Address;
use crate::network::Network;

/// After this time without an answer a name is asked for once more, beside the
/// queries that are out: the system's resolver takes five seconds to repeat one.
const QUERY_AGAIN: Duration = Duration::from_secs(1);

/// Queries for one name at a time.
const QUERIES_MAX: usize = 4;

/// Names that are being asked for.
#[derive(Debug)]
pub(super) struct Resolution {
    out: FuturesUnordered<JoinHandle<(Address, io::Result<Vec<SocketAddr>>)>>,
    /// Everything that was found.
    pub(super) found: Vec<SocketAddr>,
    /// A name for which nothing was.
    pub(super) unresolved: Option<Unresolved>,
}

impl Resolution {
    pub(super) fn begin(addresses: &[Address], network: &Arc<dyn Network>) -> Self {
        let ask = |address: &Address| {
            let (address, network) = (address.clone(), Arc::clone(network));
            tokio::spawn(async move {
                let answer = query(&address, &*network).await;
                (address, answer)
            })
        };
        let out = addresses.iter().map(ask).collect();
        Self { out, found: Vec::new(), unresolved: None }
    }

    /// The next name that was found, and where; `None` once there are no more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: what is not returned is returned next.
    pub(super) async fn next(&mut self) -> Option<(Address, Vec<SocketAddr>)> {
        loop {
            match self.out.next().await? {
                Ok((address, Ok(found))) => {
                    self.found.extend(&found);
                    return Some((address, found));
                }
                Ok((address, Err(error))) => {
                    let detail = error.to_string();
                    self.unresolved = Some(Unresolved { host: address.host, detail });
                }
                Err(ended) => {
                    let (host, detail) = ("a name".to_owned(), ended.to_string());
                    self.unresolved = Some(Unresolved { host, detail });
                }
            }
        }
    }
}

/// The first answer to queries for one name. An error only where no other query
/// is out.
async fn query(address: &Address, network: &dyn Network) -> io::Result<Vec<SocketAddr>> {
    let query = || network.resolve(&address.host, address.port);
    let mut queries = FuturesUnordered::from_iter([query()]);
    loop {
        match timeout(QUERY_AGAIN, queries.next()).await {
            Ok(Some(Err(_))) if !queries.is_empty() => {}
            Ok(Some(answer)) => return answer,
            // None is out any more, which does not happen: the last answer ends this.
            Ok(None) => queries.push(query()),
            Err(_) if queries.len() < QUERIES_MAX => queries.push(query()),
            Err(_) => {}
        }
    }
}
