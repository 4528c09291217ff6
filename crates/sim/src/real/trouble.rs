//! What is done to processes and ways, and when.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::child::Child;
use super::proxy::Way;
use super::{Endpoint, Options, RealError, setup};
use crate::dice::Dice;

const KINDS: [&str; 6] = [
    "killed",
    "stopped and continued",
    "upgraded",
    "cut from the store",
    "cut from clients",
    "endpoint restarted",
];

/// Makes trouble until the time is up; says how often of each kind.
pub(super) async fn run(
    options: &Options,
    children: &mut [Child],
    endpoint: &Endpoint,
    until: Instant,
) -> Result<Vec<(&'static str, u64)>, RealError> {
    let dice = Dice::new(options.seed, "real trouble");
    let mut counts = [0_u64; KINDS.len()];
    while Instant::now() < until {
        sleep(dice.ms(100, 1_500)).await;
        let kind = dice.index(KINDS.len());
        let child = &mut children[dice.index(children.len())];
        if options.is_talkative {
            say(&format!("{}: {}", child.name, KINDS[kind]));
        }
        counts[kind] += 1;
        // Now and then longer than any limit of those who wait.
        let lasting = if dice.percent(15) { dice.ms(6_000, 20_000) } else { dice.ms(50, 3_000) };
        let cut = if dice.percent(50) { Way::Closed } else { Way::Silent };
        match kind {
            0 => {
                child.kill().await;
                sleep(lasting.min(Duration::from_secs(3))).await;
                child.restart().await?;
            }
            1 => {
                child.signal("STOP").await;
                sleep(lasting).await;
                child.signal("CONT").await;
            }
            2 => child.upgrade().await?,
            3 => {
                child.back.set_way(cut);
                sleep(lasting).await;
                child.back.set_way(Way::Open);
            }
            4 => {
                child.front.set_way(cut);
                sleep(lasting).await;
                child.front.set_way(Way::Open);
            }
            _ => {
                let mut endpoint = endpoint.lock().await;
                endpoint.stop().await;
                sleep(lasting.min(Duration::from_secs(4))).await;
                endpoint.restart().await.map_err(setup("the S3 endpoint"))?;
            }
        }
    }
    Ok(KINDS.into_iter().zip(counts).collect())
}

/// Everything works from here on.
pub(super) async fn heal(children: &mut [Child], endpoint: &Endpoint) -> Result<(), RealError> {
    // It is up, or was left down by nobody: a restart is harmless.
    drop(endpoint.lock().await);
    for child in children {
        child.signal("CONT").await;
        child.front.set_way(Way::Open);
        child.back.set_way(Way::Open);
        child.restart().await?;
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "it was asked for")]
fn say(what: &str) {
    println!("{what}");
}
