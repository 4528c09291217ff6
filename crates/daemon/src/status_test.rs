use tonic_types::RpcStatusExt;

use super::*;

/// One status of every constructor.
fn all() -> Vec<Status> {
    let second = Duration::from_secs(1);
    vec![
        field_invalid([FieldViolation::new("mutations", "at least one")]),
        operation_id_reused("op-1"),
        history_missing("a/b", "nothing has this name"),
        history_exists("a/b", "it exists"),
        pin_exists("audit", 7),
        pin_missing("audit"),
        pins_full(128),
        history_needed("a/fork"),
        head_contended(second),
        queue_full("the queue", "1,024 operations", second),
        head_too_large("a/b", "1 MiB", second),
        too_many_requests("calls", "10", second),
        message_too_large(9, 8),
        store_unavailable("connection refused", second),
        shutting_down(),
        publication_in_doubt(second),
        freshness_unverified("timed out", second),
        expired("the queue was long"),
        version_retired(3, 10, 20),
        version_ahead(30, 10, 20),
        watcher_slow(second),
        fenced(4),
        format_too_new("a/b/head.json", 2),
        stored_data_bad("a/b/head.json", "truncated", Determinacy::NotApplied),
        unauthenticated("no certificate"),
        permission_denied("not yours"),
    ]
}

#[test]
fn every_reason_has_a_constructor_that_names_it() {
    let reasons: Vec<String> =
        all().iter().map(|it| it.get_details_error_info().unwrap().reason).collect();

    assert_eq!(reasons, reason::ALL);
}

#[test]
fn every_status_says_domain_and_determinacy() {
    for status in all() {
        let info = status.get_details_error_info().unwrap();

        assert_eq!(info.domain, reason::DOMAIN);
        let expected = match info.reason.as_str() {
            reason::PUBLICATION_IN_DOUBT => reason::MAYBE_APPLIED,
            _ => reason::NOT_APPLIED,
        };
        assert_eq!(info.metadata[reason::DETERMINACY], expected, "{}", info.reason);
    }
}

#[test]
fn what_may_succeed_later_says_when() {
    let retried: Vec<String> = all()
        .iter()
        .filter(|it| it.get_details_retry_info().is_some())
        .map(|it| it.get_details_error_info().unwrap().reason)
        .collect();

    assert_eq!(
        retried,
        [
            reason::HEAD_CONTENDED,
            reason::QUEUE_FULL,
            reason::HEAD_TOO_LARGE,
            reason::TOO_MANY_REQUESTS,
            reason::STORE_UNAVAILABLE,
            reason::SHUTTING_DOWN,
            reason::PUBLICATION_IN_DOUBT,
            reason::FRESHNESS_UNVERIFIED,
            reason::WATCHER_SLOW,
        ]
    );
}

#[test]
fn a_status_survives_its_bytes() {
    for status in all() {
        let read = tonic_types::Status::decode(to_bytes(&status)).unwrap();

        assert_eq!(read.code, status.code() as i32);
        assert_eq!(read.message, status.message());
        assert_eq!(
            read.get_details_error_info().unwrap().reason,
            status.get_details_error_info().unwrap().reason
        );
    }
    let bare = tonic_types::Status::decode(to_bytes(&Status::internal("why"))).unwrap();
    assert_eq!((bare.code, bare.message.as_str()), (Code::Internal as i32, "why"));
}

#[test]
fn the_end_of_a_watch_says_where_to_go_on_and_keeps_the_rest() {
    for status in all() {
        let ended = with_resume(&status, 7);

        assert_eq!((ended.code(), ended.message()), (status.code(), status.message()));
        let mut info = ended.get_details_error_info().unwrap();
        assert_eq!(info.metadata.remove(reason::RESUME_AFTER_VERSION).as_deref(), Some("7"));
        let before = status.get_details_error_info().unwrap();
        assert_eq!((info.reason, info.metadata), (before.reason, before.metadata));
        let delay = |it: &Status| it.get_details_retry_info().map(|it| it.retry_delay);
        assert_eq!(delay(&ended), delay(&status));
    }
}

#[test]
fn details_fit_a_header_whatever_the_request_was() {
    let rule = "é".repeat(10_000);
    let violations = (0..1_024).map(|i| FieldViolation::new(format!("keys[{i}]"), rule.clone()));

    let status = field_invalid(violations);

    // base64 makes four bytes of three.
    assert!(status.details().len() * 4 / 3 < 16 << 10, "{} bytes", status.details().len());
}
