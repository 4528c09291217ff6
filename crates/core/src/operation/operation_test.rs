//! The limits of a request, each at its edge.

use std::vec;
use std::vec::Vec;

use super::*;

fn key(len: usize) -> Key {
    Key::new(vec![b'k'; len]).unwrap()
}

fn put(len: usize) -> Mutation {
    Mutation::Put(key(1), vec![0; len].into())
}

#[test]
fn a_key_has_1_to_1024_bytes() {
    assert_eq!(Key::new(Bytes::new()), Err(KeyError::Empty));
    assert_eq!(key(1024).as_bytes().len(), 1024);
    assert_eq!(Key::new(vec![0; 1025]), Err(KeyError::TooLong { len_bytes: 1025 }));
}

#[test]
fn a_range_is_not_inverted_and_its_bounds_end_right_after_the_longest_key() {
    let range = |start: &[u8], end: Option<&[u8]>| {
        KeyRange::new(Bytes::copy_from_slice(start), end.map(Bytes::copy_from_slice))
    };
    assert!(range(b"", None).is_ok());
    assert!(range(b"a", Some(b"a\0")).is_ok());
    assert_eq!(range(b"a", Some(b"a")), Err(KeyRangeError::Inverted));
    assert_eq!(range(b"b", Some(b"a")), Err(KeyRangeError::Inverted));
    assert_eq!(range(b"", Some(b"")), Err(KeyRangeError::Inverted));
    let after_longest_key = [b'x'; 1025];
    assert!(range(b"", Some(&after_longest_key)).is_ok());
    let long = [b'x'; 1026];
    assert_eq!(range(&long, None), Err(KeyRangeError::TooLong { len_bytes: 1026 }));
    assert_eq!(range(b"", Some(&long)), Err(KeyRangeError::TooLong { len_bytes: 1026 }));

    let range = range(b"b", Some(b"d")).unwrap();
    let contains = [&b"a\xff"[..], b"b", b"c\xff\xff", b"d"].map(|it| range.contains(it));
    assert_eq!(contains, [false, true, true, false]);
    assert!(KeyRange::everything().contains(b"\0"));
    assert!(KeyRange::everything().contains(&[0xff; 1024]));
}

#[test]
fn a_request_has_something_to_do_within_its_limits() {
    let new = |preconditions: Vec<_>, mutations: Vec<_>| {
        Request::new(preconditions, mutations).map(|_| ())
    };
    assert_eq!(new(vec![], vec![]), Err(RequestError::NoMutation));
    assert_eq!(new(vec![], vec![put(Request::VALUE_BYTES_MAX)]), Ok(()));
    let too_long = RequestError::ValueTooLong { len_bytes: Request::VALUE_BYTES_MAX + 1 };
    assert_eq!(new(vec![], vec![put(0), put(Request::VALUE_BYTES_MAX + 1)]), Err(too_long));
    let equals = Precondition::ValueEquals(key(1), vec![0; Request::VALUE_BYTES_MAX + 1].into());
    assert_eq!(new(vec![equals], vec![put(0)]), Err(too_long));

    let absent = || Precondition::KeyAbsent(key(1));
    assert_eq!(new(vec![absent(); 1024], vec![put(0); 1024]), Ok(()));
    let too_many = |what| Err(RequestError::TooMany { what, count: 1025, max: 1024 });
    assert_eq!(new(vec![absent(); 1025], vec![put(0)]), too_many("preconditions"));
    assert_eq!(new(vec![], vec![put(0); 1025]), too_many("mutations"));

    // Four values of a mebibyte are over it by what frames them.
    let large = || put(Request::VALUE_BYTES_MAX);
    assert_eq!(new(vec![], vec![large(), large(), large(), put(1_048_000)]), Ok(()));
    let frame = 12 + 4 * 10;
    let len_bytes = Request::BYTES_MAX + frame;
    assert_eq!(new(vec![], vec![large(); 4]), Err(RequestError::TooLarge { len_bytes }));
    let exact = put(Request::VALUE_BYTES_MAX - frame);
    assert_eq!(new(vec![], vec![large(), large(), large(), exact]), Ok(()));
}

#[test]
fn a_hash_tells_requests_apart_by_everything_in_them() {
    let request = |preconditions: Vec<_>, mutations: Vec<_>| {
        Request::new(preconditions, mutations).unwrap().hash()
    };
    let at = |it| Precondition::KeyAtVersion(key(1), StateVersion::new(it));
    let hashes = [
        request(vec![], vec![put(1)]),
        request(vec![], vec![put(2)]),
        request(vec![], vec![put(1), put(1)]),
        request(vec![at(1)], vec![put(1)]),
        request(vec![at(2)], vec![put(1)]),
        request(vec![], vec![Mutation::Delete(key(1))]),
        request(vec![], vec![Mutation::Add(key(1), 1)]),
        request(vec![], vec![Mutation::Add(key(1), -1)]),
        request(vec![], vec![Mutation::DeleteRange(KeyRange::everything())]),
    ];
    for (a, i) in hashes.iter().zip(0..) {
        for (b, j) in hashes.iter().zip(0..) {
            assert_eq!(a == b, i == j, "{i} {j}");
        }
    }
    assert_eq!(request(vec![at(1)], vec![put(1)]), hashes[3]);
}

#[test]
fn integers_are_8_bytes() {
    for number in [0, 1, -1, i64::MIN, i64::MAX] {
        assert_eq!(integer::decode(&integer::encode(number)), Some(number));
    }
    assert_eq!(&integer::encode(-2)[..], [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(integer::decode(b"1234567"), None);
    assert_eq!(integer::decode(b"123456789"), None);
    assert_eq!(integer::decode(b""), None);
}

#[test]
fn the_first_possible_version_is_the_one_after_the_issue() {
    let issued_from = StateVersion::new(4);
    assert_eq!(Issue::ClientKept(issued_from).earliest(), StateVersion::new(5));
    let kept = Issue::ServiceKept { issued_from, is_durable: false };
    assert_eq!((kept.issued_from(), kept.earliest()), (issued_from, StateVersion::new(5)));
}
