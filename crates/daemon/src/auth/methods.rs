//! Which method needs what. What is not in here is refused.

use super::Role;

/// What a method needs of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: anybody who can connect may ask.
    Open,
    /// A known identity, whatever it may do.
    Identity,
    /// The role for the history that the request names.
    Role(Role),
}

/// How long a call may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One message, one answer.
    Unary,
    /// One message, and answers for as long as the server likes; so the
    /// caller's rights are looked at again meanwhile.
    Answers,
    /// Messages and answers for as long as both like.
    Stream,
    /// The same, and the service keeps what the messages say until its end.
    Subscription,
}

/// One method.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// As requests name it.
    pub path: &'static str,
    /// What it needs.
    pub need: Need,
    /// How long it lasts.
    pub shape: Shape,
}

const fn unary(path: &'static str, role: Role) -> Method {
    Method { path, need: Need::Role(role), shape: Shape::Unary }
}

const fn answers(path: &'static str, role: Role) -> Method {
    Method { path, need: Need::Role(role), shape: Shape::Answers }
}

const fn stream(path: &'static str, role: Role) -> Method {
    Method { path, need: Need::Role(role), shape: Shape::Stream }
}

/// Every method that is served.
pub const METHODS: &[Method] = &[
    unary("/headwater.v1.ReadService/Get", Role::Read),
    unary("/headwater.v1.ReadService/BatchGet", Role::Read),
    unary("/headwater.v1.ReadService/Scan", Role::Read),
    unary("/headwater.v1.ReadService/GetHead", Role::Read),
    unary("/headwater.v1.ReadService/ListChanges", Role::Read),
    unary("/headwater.v1.ReadService/VersionAt", Role::Read),
    answers("/headwater.v1.WatchService/Watch", Role::Read),
    // Replicas: which heads moved.
    Method {
        path: "/headwater.v1.WriteService/SubscribeHeads",
        need: Need::Role(Role::Read),
        shape: Shape::Subscription,
    },
    unary("/headwater.v1.HistoryService/GetHistory", Role::Read),
    // Of the names that begin as the caller's prefix does.
    unary("/headwater.v1.HistoryService/ListHistories", Role::Read),
    unary("/headwater.v1.WriteService/Submit", Role::Write),
    // Other writers: what their callers may submit there, they may submit here.
    unary("/headwater.v1.ForwardService/Forward", Role::Write),
    stream("/headwater.v1.WriteService/SubmitStream", Role::Write),
    // Whoever submitted asks; and the answer may take a replacement of the head.
    unary("/headwater.v1.WriteService/GetOperation", Role::Write),
    // Owners of an exclusive history take over when they start.
    unary("/headwater.v1.HistoryService/RaiseWriterEpoch", Role::Write),
    unary("/headwater.v1.RetentionService/PinVersion", Role::Maintain),
    unary("/headwater.v1.RetentionService/UnpinVersion", Role::Maintain),
    unary("/headwater.v1.RetentionService/SetRetention", Role::Maintain),
    unary("/headwater.v1.RetentionService/RestoreVersion", Role::Maintain),
    // For the source; the new history needs `admin`.
    unary("/headwater.v1.RetentionService/ForkHistory", Role::Maintain),
    // For every history, since it is about the process.
    unary("/headwater.v1.ProcessService/GetStoreUsage", Role::Maintain),
    unary("/headwater.v1.HistoryService/CreateHistory", Role::Admin),
    unary("/headwater.v1.HistoryService/DeleteHistory", Role::Admin),
    Method { path: "/grpc.health.v1.Health/Check", need: Need::Open, shape: Shape::Unary },
    Method { path: "/grpc.health.v1.Health/Watch", need: Need::Open, shape: Shape::Answers },
    Method { path: "/grpc.health.v1.Health/List", need: Need::Open, shape: Shape::Unary },
    Method {
        path: "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        need: Need::Identity,
        shape: Shape::Stream,
    },
];

/// Most bytes of the request of a method that is open: the name of a service
/// fits many times over.
pub const OPEN_REQUEST_BYTES_MAX: usize = 4 << 10;

/// The row of a path.
pub fn find(path: &str) -> Option<Method> {
    METHODS.iter().find(|it| it.path == path).copied()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;

    use super::*;

    /// Names of services and methods, out of an encoded descriptor set.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Files {
        #[prost(message, repeated, tag = "1")]
        file: Vec<File>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct File {
        #[prost(string, tag = "2")]
        package: String,
        #[prost(message, repeated, tag = "6")]
        service: Vec<Service>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Service {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(message, repeated, tag = "2")]
        method: Vec<Rpc>,
    }
    #[derive(Clone, PartialEq, prost::Message)]
    struct Rpc {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(bool, tag = "5")]
        client_streaming: bool,
        #[prost(bool, tag = "6")]
        server_streaming: bool,
    }

    #[test]
    fn every_method_of_the_contract_has_a_row_and_no_row_is_of_another() {
        let mut described = BTreeSet::new();
        for set in [
            headwater_proto::FILE_DESCRIPTOR_SET,
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        ] {
            for file in Files::decode(set).unwrap().file {
                for service in file.service {
                    for rpc in service.method {
                        let path = format!("/{}.{}/{}", file.package, service.name, rpc.name);
                        let row = find(&path).unwrap_or_else(|| panic!("{path} has no row"));
                        let shape = match (rpc.client_streaming, rpc.server_streaming) {
                            (false, false) => Shape::Unary,
                            (false, true) => Shape::Answers,
                            (true, _) if rpc.name.starts_with("Subscribe") => Shape::Subscription,
                            (true, _) => Shape::Stream,
                        };
                        assert_eq!(row.shape, shape, "{path}");
                        described.insert(path);
                    }
                }
            }
        }
        let rows: BTreeSet<String> = METHODS.iter().map(|it| it.path.to_owned()).collect();
        assert_eq!(rows.len(), METHODS.len(), "a row is there twice");
        // The health service may know fewer methods than are listed.
        let extra: Vec<_> = rows.difference(&described).collect();
        assert!(extra.iter().all(|it| it.ends_with("Health/List")), "{extra:?}");
    }

    #[test]
    fn only_health_is_open() {
        let open = METHODS.iter().filter(|it| it.need == Need::Open);
        assert!(open.into_iter().all(|it| it.path.starts_with("/grpc.health.v1.Health/")));
    }
}
