//! The contract suite against the store that `HEADWATER_TEST_STORE_URL` names,
//! with credentials from the environment. `ci/stores` runs it on real servers.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use headwater_store::contract::{Place, check_all, clean};
use headwater_store::{Entropy, open};

/// Objects that the suite leaves, and some more.
const OBJECTS_MAX: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_store_that_is_named_keeps_the_contract() {
    let Ok(url) = std::env::var("HEADWATER_TEST_STORE_URL") else {
        println!("left out: HEADWATER_TEST_STORE_URL names no store");
        return;
    };
    let entropy = Entropy::from_os();
    let scratch = format!("contract-{:016x}", entropy.u64());
    let place = Place::new(open(&url).unwrap(), open(&url).unwrap(), &scratch, entropy);

    let found = check_all(&place).await;

    clean(&place, OBJECTS_MAX).await.unwrap();
    println!("{:?}", found.unwrap());
}
