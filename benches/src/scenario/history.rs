//! Whether a history that has become long is as fast as it was.

use tokio::time::Instant;

use crate::Plan;
use crate::load::Measured;
use crate::report::{Line, line};
use crate::system::{BoxError, World};

/// Commits one after the other.
pub(super) async fn long(plan: Plan) -> Result<Line, BoxError> {
    let world = World::new(plan).await?;
    let (writer, meter) = world.writer()?;
    let putter = world.putter(&writer, plan.value_bytes);
    let began = Instant::now();
    let mut parts = [(); 10].map(|()| Measured::empty(plan.time));
    for n in 0..plan.changes {
        let sent = Instant::now();
        let is_accepted = putter.put(0, n).await;
        let part = usize::try_from(n * 10 / plan.changes).unwrap_or_default().min(9);
        parts[part].note(sent.elapsed(), is_accepted);
    }
    let store = meter.read();
    let head_bytes = world.head_bytes().await?;
    writer.shutdown().await;
    let [first, last] = [&parts[0], &parts[9]].map(Measured::p50_ms);
    let mut all = Measured::empty(began.elapsed());
    for it in parts {
        all.add(it);
    }
    let floor_ms = plan.write.as_secs_f64() * 1_000.0;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let head_bytes = head_bytes as f64;
    Ok(line("long-history", plan, floor_ms, &all, &store)
        .with("firstP50Ms", first)
        .with("lastP50Ms", last)
        .with("lastToFirst", last / first)
        .with("headBytes", head_bytes))
}
