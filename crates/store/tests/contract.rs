//! The contract suite, against every adapter.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up has failed")]

use std::env;
use std::sync::Arc;

use headwater_s3_double::{
    ACCESS_KEY_ID, ACCESS_TOKEN, Compared, Conduct, GcsDouble, Op, S3Double, SECRET_ACCESS_KEY,
};
use headwater_store::contract::{Notes, Place, check_all, clean};
use headwater_store::{
    AzureAccessKey, AzureContainer, AzureOptions, Entropy, GcsBucket, GcsOptions, LocalDir, Memory,
    S3Bucket, S3Credentials, S3Options, Store,
};

fn place(one: impl Store, other: impl Store, prefix: &str) -> Place {
    Place::new(Arc::new(one), Arc::new(other), prefix, Entropy::from_os())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_keeps_the_contract() {
    let memory = Memory::new();

    let notes = check_all(&place(memory.clone(), memory, "scratch")).await.unwrap();

    assert_eq!(notes, Notes { tags_recur: false, reads_recur: false, tells_gone: true });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_directory_keeps_the_contract() {
    let root = tempfile::tempdir().unwrap();
    let open = || LocalDir::open(root.path().join("not/there/yet")).unwrap();

    let notes = check_all(&place(open(), open(), "scratch/a")).await.unwrap();

    assert_eq!(notes, Notes { tags_recur: true, reads_recur: true, tells_gone: true });
}

fn s3(double: &S3Double, prefix: &str) -> S3Bucket {
    s3_at(&double.url(prefix))
}

fn s3_at(url: &str) -> S3Bucket {
    let credentials = S3Credentials {
        access_key_id: ACCESS_KEY_ID.into(),
        secret_access_key: SECRET_ACCESS_KEY.into(),
    };
    let options = S3Options::parse(url).unwrap();
    S3Bucket::open(&S3Options { credentials: Some(credentials), ..options }).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bucket_keeps_the_contract() {
    let double = S3Double::start().await.unwrap();
    for prefix in ["", "some root/with%20/x"] {
        let (one, other) = (s3(&double, prefix), s3(&double, prefix));

        // The endpoint hashes what it gets, slowly in this profile. Still more
        // than goes by one request.
        let place = place(one, other, "scratch").with_large(33 << 20);
        let notes = check_all(&place).await.unwrap();

        assert!(double.requests().count_with(Op::Upload, "sizes/large") > 2);
        assert_eq!(notes, Notes { tags_recur: true, reads_recur: true, tells_gone: true });
    }
}

/// As Ceph 16 does it. In the usual form no replacement would ever match.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bucket_that_compares_bare_tags_keeps_the_contract_in_that_form() {
    let double = S3Double::start().await.unwrap();
    double.set_conduct(Conduct { compared: Compared::Unquoted, ..Conduct::default() });
    let place = |url: &str| {
        let open = || s3_at(url);
        place(open(), open(), "scratch").with_large(1 << 20).with_race(8, 2)
    };

    let broken = check_all(&place(&double.url("quoted"))).await.unwrap_err();
    assert!(broken.rule.contains("replaced where the tag matches"), "{broken}");

    let url = double.url("unquoted") + "&tag_form=unquoted";
    check_all(&place(&url)).await.unwrap();
}

/// Against an endpoint of ours that plays the XML API: no server of others does
/// it well enough to be asked (docs/stores.md).
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn google_cloud_storage_as_its_reference_has_it_keeps_the_contract() {
    let double = GcsDouble::start().await.unwrap();
    for prefix in ["", "some root/with%20/x"] {
        let open = || {
            let options = GcsOptions::parse(&double.url(prefix)).unwrap();
            let access_token = Some(ACCESS_TOKEN.into());
            GcsBucket::open(&GcsOptions { access_token, ..options }).unwrap()
        };

        let place = place(open(), open(), "scratch").with_large(33 << 20);
        let notes = check_all(&place).await.unwrap();

        assert_eq!(notes, Notes { tags_recur: false, reads_recur: true, tells_gone: false });
    }
}

/// Against a real server, at `HEADWATER_TEST_S3_ENDPOINT`, in the bucket
/// `HEADWATER_TEST_S3_BUCKET` (`headwater-test`), which must exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_real_server_keeps_the_contract() {
    let Ok(endpoint) = env::var("HEADWATER_TEST_S3_ENDPOINT") else {
        println!("skipped: HEADWATER_TEST_S3_ENDPOINT is not set");
        return;
    };
    let bucket = env::var("HEADWATER_TEST_S3_BUCKET").unwrap_or("headwater-test".into());
    let options = S3Options {
        bucket,
        prefix: "contract".into(),
        endpoint: Some(endpoint),
        region: Some("us-east-1".into()),
        allow_http: Some(true),
        credentials: Some(S3Credentials {
            access_key_id: env::var("AWS_ACCESS_KEY_ID").unwrap_or("test".into()),
            secret_access_key: env::var("AWS_SECRET_ACCESS_KEY").unwrap_or("test".into()),
        }),
        ..S3Options::default()
    };
    let open = || S3Bucket::open(&options).unwrap();
    let scratch = format!("run-{:016x}", Entropy::from_os().u64());
    let place = place(open(), open(), &scratch);

    let notes = check_all(&place).await.unwrap();

    clean(&place, 1000).await.unwrap();
    println!("{notes:?}");
}

/// The account and the key that Azurite has from the start: they are public, and
/// open nothing else.
const AZURITE_ACCOUNT: &str = "devstoreaccount1";
const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Against Azurite, or an account, at `HEADWATER_TEST_AZURE_ENDPOINT`, in the
/// container `HEADWATER_TEST_AZURE_CONTAINER` (`headwater-test`), which must
/// exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn azure_keeps_the_contract() {
    let Ok(endpoint) = env::var("HEADWATER_TEST_AZURE_ENDPOINT") else {
        println!("skipped: HEADWATER_TEST_AZURE_ENDPOINT is not set");
        return;
    };
    let text = |name: &str, otherwise: &str| env::var(name).unwrap_or(otherwise.into());
    let options = AzureOptions {
        container: text("HEADWATER_TEST_AZURE_CONTAINER", "headwater-test"),
        prefix: "contract".into(),
        account: Some(text("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT)),
        endpoint: Some(endpoint),
        allow_http: Some(true),
        access_key: Some(AzureAccessKey::new(text("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY))),
    };
    let open = || AzureContainer::open(&options).unwrap();
    let scratch = format!("run-{:016x}", Entropy::from_os().u64());
    let place = place(open(), open(), &scratch);

    let notes = check_all(&place).await.unwrap();

    clean(&place, 1000).await.unwrap();
    println!("{notes:?}");
}
