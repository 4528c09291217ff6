//! Which histories there are below the root of a store.

use std::collections::BTreeSet;

use headwater_core::id::HistoryName;
use headwater_core::keys;
use headwater_store::{ReadError, Store as _};

use crate::Verifier;

impl Verifier {
    /// The names that have a head, in order; those of deleted histories too.
    ///
    /// Names nest, so every folder that could be one is looked into, one after
    /// another. Memory: the names.
    ///
    /// # Errors
    ///
    /// [`ReadError`].
    pub async fn histories(&self) -> Result<Vec<HistoryName>, ReadError> {
        let mut ahead = BTreeSet::from([String::new()]);
        let mut found = BTreeSet::new();
        while let Some(folder) = ahead.pop_first() {
            let listed = match self.store.list_folder(&folder).await {
                Ok(listed) => listed,
                Err(ReadError::Missing { .. }) => continue,
                Err(error) => return Err(error),
            };
            let head = format!("{folder}{}", keys::HEAD);
            let name = HistoryName::parse(folder.trim_end_matches('/'));
            if listed.objects.iter().any(|it| it.key == head) {
                found.extend(name.ok());
            }
            let is_name = |it: &String| HistoryName::parse(it.trim_end_matches('/')).is_ok();
            ahead.extend(listed.folders.into_iter().filter(is_name));
        }
        Ok(found.into_iter().collect())
    }
}
