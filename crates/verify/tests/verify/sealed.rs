//! Sealed stores: damage is told from a key that is not at hand.

use std::sync::Arc;

use headwater_store::{Keyring, Memory, Plain, Sealed, Store};
use headwater_verify::{Kind, Options, Progress, Severity, Verdict, Verifier};
use tokio_util::sync::CancellationToken;

use crate::fixture::{damage, rich_over};

const SECRET: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

#[tokio::test(start_paused = true)]
async fn a_sealed_history_is_checked_and_its_damage_is_named_in_plain() {
    let bucket: Arc<dyn Store> = Arc::new(Memory::new());
    let keyring = Keyring::parse(&format!("names {SECRET}\nkey one {SECRET}\n")).unwrap();
    let sealed: Arc<dyn Store> = Arc::new(Sealed::new(Arc::clone(&bucket), keyring));
    let world = rich_over(sealed).await;
    let report = world.verify().await;
    assert_eq!(report.verdict(), Verdict::Clean, "{:#?}", report.findings);

    for it in bucket.list("h/receipts/", None, 100).await.unwrap() {
        let mut changed = bucket.get(&it.key).await.unwrap().to_vec();
        *changed.last_mut().unwrap() ^= 1;
        bucket.delete(&it.key).await.unwrap();
        bucket.put(&it.key, changed.into()).await.unwrap();
    }
    let report = world.verify().await;
    let pages: Vec<String> = world
        .head()
        .await
        .receipt_pages
        .iter()
        .map(|it| world.history.object_key(&it.object.key))
        .collect();
    let found: Vec<_> = damage(&report).iter().map(|it| (it.kind, it.key.clone())).collect();
    let expected: Vec<_> = pages.into_iter().map(|it| (Kind::Damaged, it)).collect();
    assert_eq!(found, expected);
    assert_eq!(report.count(Severity::Unchecked), 0);

    // Without the keys nobody can say anything, and nothing is called damage.
    let plain: Arc<dyn Store> = Arc::new(Plain::new(bucket));
    let verifier =
        Verifier::new(plain, Options::default(), Progress::default(), CancellationToken::new());
    let report = verifier.verify(&world.history).await.unwrap();
    assert_eq!(report.verdict(), Verdict::Unchecked);
    assert_eq!(report.findings[0].kind, Kind::NotChecked);
}
