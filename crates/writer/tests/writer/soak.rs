//! Everything at once: writers that die, a store that fails in every way, small
//! windows and snapshots all the time. Each run is replayed by its seed.

use std::collections::BTreeMap;
use std::time::Duration;

use headwater_core::publish::{Answer, SubmitError};
use headwater_store::{Call, Entropy, Fault, Rule};
use headwater_writer::WriterConfig;

use crate::fixture::{Host, Op, World, look, sums};

const CALLERS: u64 = 6;
const OPERATIONS: u64 = 12;

fn config() -> WriterConfig {
    WriterConfig {
        fold_changes: 5,
        compact_tail_versions: 15,
        compact_keep_versions: 3,
        receipt_versions_max: 200,
        operation_timeout_ms: 3_000,
        history_idle_ms: 700,
        inline_bytes_max: 600,
        ..WriterConfig::default()
    }
}

fn host(world: &World, entropy: &Entropy) -> Host {
    let host = world.host_with(config());
    let some = |percent| move |fault| Rule::new(fault).percent(percent, entropy.clone());
    let (rare, often) = (some(2), some(5));
    let slow = Duration::from_millis(1 + entropy.below(80));
    for fault in [
        Fault::LoseReply,
        Fault::LoseCall,
        Fault::Repeat,
        Fault::Conflict,
        Fault::Throttled(None),
        Fault::Delay(slow),
    ] {
        host.faults.add(often(fault.clone()).on(Call::ReplaceHead));
        host.faults.add(rare(fault));
    }
    host.faults.add(rare(Fault::ApplyLate).on(Call::ReplaceHead));
    host.faults.add(rare(Fault::Throttled(Some(Duration::from_millis(300)))));
    host
}

/// Asks until there is an outcome, of whichever writer lives.
async fn insist(world: &World, hosts: &Hosts, entropy: &Entropy, op: &Op) -> Answer {
    loop {
        let host = hosts.pick(world, entropy);
        let answer = host.submit(op.clone()).await;
        match answer {
            Answer::Failed(
                SubmitError::InDoubt
                | SubmitError::StoreUnavailable
                | SubmitError::Expired
                | SubmitError::Contended,
            ) => (),
            other => return other,
        }
    }
}

/// The writers that live. One is replaced now and then.
struct Hosts(std::sync::Mutex<Vec<std::sync::Arc<Host>>>);

impl Hosts {
    fn pick(&self, world: &World, entropy: &Entropy) -> std::sync::Arc<Host> {
        let mut hosts = self.0.lock().unwrap();
        let at = usize::try_from(entropy.below(hosts.len() as u64)).unwrap();
        if entropy.below(15) == 0 {
            hosts[at] = std::sync::Arc::new(host(world, entropy));
        }
        std::sync::Arc::clone(&hosts[at])
    }

    /// What was kept back arrives, long after its writer forgot it.
    async fn apply_late(&self) {
        let hosts = self.0.lock().unwrap().clone();
        for host in hosts {
            host.faults.apply_late().await;
        }
    }
}

async fn caller(world: &World, hosts: &Hosts, entropy: &Entropy, caller: u64) -> Vec<Told> {
    let mut told = Vec::new();
    let mut seen = 0;
    for n in 0..OPERATIONS {
        let id = format!("{caller}-{n}");
        let mut op = Op::new(&id).add("n", 1).issued_from(seen);
        if entropy.below(3) == 0 {
            op = op.put_bytes(&format!("large-{caller}"), vec![7; 700]);
        }
        if entropy.below(3) == 0 {
            op = op.service_kept();
        }
        if entropy.below(4) == 0 {
            op = op.if_absent(&format!("lock-{}", entropy.below(4)));
            op = op.put(&format!("lock-{}", entropy.below(4)), "taken");
        }
        let answer = insist(world, hosts, entropy, &op).await;
        if let Answer::Accepted { receipt, .. } = &answer {
            seen = receipt.accepted_at.get();
            if entropy.below(3) == 0 {
                // A retry is told the same.
                match insist(world, hosts, entropy, &op).await {
                    Answer::Accepted { receipt: again, .. } => assert_eq!(again, *receipt),
                    other => panic!("{id}: {other:?} after {receipt:?}"),
                }
            }
        }
        told.push(Told { id, answer });
        if entropy.below(5) == 0 {
            hosts.apply_late().await;
            tokio::time::sleep(Duration::from_millis(entropy.below(1_500))).await;
        }
    }
    told
}

struct Told {
    id: String,
    answer: Answer,
}

async fn run(seed: u64) {
    let entropy = Entropy::from_seed(seed);
    let world = World::seeded(seed);
    world.host().create("h").await;
    let hosts = (0..3).map(|_| std::sync::Arc::new(host(&world, &entropy))).collect();
    let hosts = Hosts(std::sync::Mutex::new(hosts));

    let callers = (0..CALLERS).map(|n| caller(&world, &hosts, &entropy, n));
    let told: Vec<Told> = futures::future::join_all(callers).await.into_iter().flatten().collect();

    let head = world.head().await;
    let state = world.state().await;
    let mut by_sum = BTreeMap::new();
    let mut by_place = BTreeMap::new();
    for Told { id, answer } in &told {
        match answer {
            Answer::Accepted { receipt, .. } => {
                assert_eq!(by_sum.insert(sums(receipt)[0], id), None, "seed {seed}: {id}");
                let place = (receipt.accepted_at, receipt.position);
                assert_eq!(by_place.insert(place, sums(receipt)[0]), None, "seed {seed}: {id}");
            }
            Answer::Rejected { .. } => (),
            other => panic!("seed {seed}: {id}: {other:?}"),
        }
    }
    // Sums rise with the order of acceptance, from 1, without a gap: nothing
    // was applied twice, and nothing that was rejected was applied.
    let count = i64::try_from(by_sum.len()).unwrap();
    assert!(by_place.values().copied().eq(1..=count), "seed {seed}");
    assert_eq!(head.operation_count, by_sum.len() as u64, "seed {seed}");
    assert_eq!(look::number(&state, "n"), count, "seed {seed}");
    assert_eq!(head.receipt_coverage_from.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_applied_twice_whatever_happens() {
    for seed in 0..SEEDS {
        run(seed).await;
    }
}

/// More of them for a longer run.
const SEEDS: u64 = 20;
