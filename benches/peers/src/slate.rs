//! SlateDB: durable puts, flushed every millisecond, over a store that is as far
//! away as Headwater's.

use std::sync::Arc;
use std::time::Duration;

use headwater_benches::Plan;
use headwater_benches::load::{self, Measured};
use headwater_benches::system::BoxError;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use slatedb::config::Settings;
use slatedb::{Db, object_store::ObjectStore};

pub async fn measure(plan: Plan) -> Result<Measured, BoxError> {
    let config = ThrottleConfig {
        wait_get_per_call: plan.read,
        wait_put_per_call: plan.write,
        wait_list_per_call: plan.read,
        wait_delete_per_call: plan.write,
        ..ThrottleConfig::default()
    };
    let store: Arc<dyn ObjectStore> = Arc::new(ThrottledStore::new(InMemory::new(), config));
    let settings =
        Settings { flush_interval: Some(Duration::from_millis(1)), ..Settings::default() };
    let db = Arc::new(Db::builder("bench", store).with_settings(settings).build().await?);
    let value = bytes::Bytes::from(vec![b'v'; plan.value_bytes]);
    let calling = Arc::clone(&db);
    let call = move |caller: usize, n: u64| {
        let (db, value) = (Arc::clone(&calling), value.clone());
        async move {
            let key = format!("key/{caller:05}/{:03}", n % 100);
            let Ok(handle) = db.put(key, value).await else { return false };
            handle.await_durable().await.is_ok()
        }
    };
    let measured = load::run(plan.callers, plan.time, call, || ()).await;
    db.close().await?;
    Ok(measured)
}
