//! Reading transactions.

use headwater_client::{IssueVersion, Operation, OperationId};

use super::*;

fn operation() -> Operation {
    Operation::new(OperationId::new("t").unwrap(), IssueVersion::At(0))
}

#[test]
fn the_documented_shape_is_read() {
    // The example of the help page, without the remarks beside it.
    let hash = "ab".repeat(32);
    let example: String = SHAPE
        .lines()
        .skip_while(|it| !it.starts_with("    {"))
        .take_while(|it| it.starts_with("    "))
        .map(|line| line.split_once("          ").map_or(line, |it| it.0))
        .map(|line| line.replace("64 hex digits of blake3", &hash))
        .map(|line| {
            let remark = [" optional", " at least"].iter().find_map(|it| line.find(it));
            line[..remark.unwrap_or(line.len())].to_owned()
        })
        .collect();

    let request = Request::parse(example.as_bytes()).expect(&example);

    let issue = request.issue(&IssueOptions::default()).unwrap();
    assert_eq!(issue.operation_id, Some(OperationId::new("order-17").unwrap()));
    assert_eq!(issue.issued_from, Some(12));
    let expected = operation()
        .require_exists("a")
        .require_absent("b")
        .require_version("a", 7)
        .require_unchanged("a", 7)
        .require_range_unchanged(KeyRange::new("a", "b"), 7)
        .require_range_unchanged(KeyRange::prefix("order/"), 7)
        .require_value("a", "x")
        .require_value_hash("a", [0xab; 32])
        .put("a", "y")
        .delete("b")
        .delete_range(KeyRange::new("c", "d"))
        .delete_range(KeyRange::prefix("draft/"))
        .add("count", 1);
    assert_eq!(request.add_to(operation()), expected);
}

#[test]
fn bytes_that_are_not_text_are_base64() {
    let json = br#"{"mutations": [{"put": {"keyBase64": "/wA=", "valueBase64": ""}}]}"#;

    let request = Request::parse(json).unwrap();

    assert_eq!(request.add_to(operation()), operation().put(vec![0xff, 0], ""));
}

#[test]
fn options_and_json_name_one_operation() {
    let json = br#"{"operationId": "a", "issuedFromVersion": 3, "mutations": []}"#;
    let request = Request::parse(json).unwrap();
    let named = |id: &str| IssueOptions {
        operation_id: Some(OperationId::new(id).unwrap()),
        ..IssueOptions::default()
    };

    for options in [named("a"), IssueOptions::default()] {
        let issue = request.issue(&options).unwrap();
        assert_eq!(issue.operation_id, named("a").operation_id);
        assert_eq!(issue.issued_from, Some(3));
    }
    assert!(request.issue(&named("b")).is_err());
    let options = IssueOptions { issued_from: Some(2), ..IssueOptions::default() };
    assert_eq!(request.issue(&options).unwrap().issued_from, Some(2));
    let options = IssueOptions { service_kept: true, ..IssueOptions::default() };
    assert_eq!(request.issue(&options).unwrap().issued_from, None);
}

#[test]
fn a_mistake_is_named() {
    let message = |json: &str| Request::parse(json.as_bytes()).unwrap_err().to_string();

    assert!(message("{").contains("EOF"));
    assert!(message(r#"{"mutation": []}"#).contains("`mutation`"));
    assert!(message(r#"{"mutations": [{"set": {}}]}"#).contains("`set`"));
    assert!(message(r#"{"mutations": [{"put": {"key": "a", "valeu": ""}}]}"#).contains("`valeu`"));
    let missing = message(r#"{"mutations": [{"delete": {"key": "a"}}, {"put": {"key": "a"}}]}"#);
    assert_eq!(missing, "mutations[1]: `value` or `valueBase64` is missing");
    let both = message(r#"{"mutations": [{"deleteRange": {"prefix": "a", "end": "b"}}]}"#);
    assert!(both.starts_with("mutations[0]: a range"));
    let hash =
        r#"{"preconditions": [{"valueHashEquals": {"key": "a", "hash": "ab"}}], "mutations": []}"#;
    assert_eq!(message(hash), "preconditions[0]: `hash` is not 64 hex digits");
    assert!(message(r#"{"operationId": "a b", "mutations": []}"#).contains("64 bytes"));
}
