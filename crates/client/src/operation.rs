//! What a caller wants done: preconditions, then mutations, all or none.

use bytes::Bytes;
use headwater_proto::v1;
use headwater_proto::v1::mutation::Kind as MutationKind;
use headwater_proto::v1::precondition::Kind as PreconditionKind;
use headwater_proto::v1::value_equals::Expected;

use crate::id::OperationId;
use crate::range::KeyRange;

/// From which version on the operation can have been applied: what tells a
/// retry from a new request once receipts are gone (PROTOCOL 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IssueVersion {
    /// The newest version that the session has seen when the operation is first
    /// sent; the head is asked where it has seen none. Right for an id that
    /// nobody sent before this process does, such as the random one of
    /// [`Client::operation`](crate::Client::operation). Wrong for one that an
    /// earlier process may have sent: the operation could be applied twice.
    Newest,
    /// A version that had been seen when the operation was first sent, by
    /// whatever process. 0 is always true, and makes `unknown` likelier.
    At(u64),
    /// The writer keeps it, in a record beside the operation. Costs one more
    /// request to the store. Right for ids that outlive the process, such as
    /// those made from the name of an input.
    ServiceKept,
}

/// One operation. Cheap to clone: keys and values are shared.
///
/// ```
/// use headwater_client::{IssueVersion, KeyRange, Operation, OperationId};
///
/// let id = OperationId::new("import-2024-05-01:17")?;
/// let operation = Operation::new(id, IssueVersion::ServiceKept)
///     .require_absent("user/7")
///     .put("user/7", "Ada")
///     .add("users", 1)
///     .delete_range(KeyRange::prefix("draft/7/"));
/// # Ok::<(), headwater_client::OperationIdError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    pub(crate) id: OperationId,
    pub(crate) issue: IssueVersion,
    pub(crate) preconditions: Vec<v1::Precondition>,
    pub(crate) mutations: Vec<v1::Mutation>,
}

impl Operation {
    /// An operation that does nothing yet. A server refuses one without a
    /// mutation.
    ///
    /// Whoever chooses an id knows whether it can have been sent before, and
    /// from when on; so `issue` has no default here.
    /// [`Client::operation`](crate::Client::operation) draws an id for which
    /// [`IssueVersion::Newest`] is right.
    pub fn new(id: OperationId, issue: IssueVersion) -> Self {
        Self { id, issue, preconditions: Vec::new(), mutations: Vec::new() }
    }

    /// The operation's id.
    pub fn id(&self) -> &OperationId {
        &self.id
    }

    /// The issue version: [`IssueVersion::At`] once the operation was sent,
    /// unless the writer keeps it.
    pub fn issue_version(&self) -> IssueVersion {
        self.issue
    }

    /// Chooses who keeps the issue version.
    #[must_use]
    pub fn issued(mut self, issue: IssueVersion) -> Self {
        self.issue = issue;
        self
    }

    /// The key has a value.
    #[must_use]
    pub fn require_exists(self, key: impl Into<Bytes>) -> Self {
        self.require(PreconditionKind::KeyExists(key.into()))
    }

    /// The key has no value.
    #[must_use]
    pub fn require_absent(self, key: impl Into<Bytes>) -> Self {
        self.require(PreconditionKind::KeyAbsent(key.into()))
    }

    /// The key was last written at this very version.
    #[must_use]
    pub fn require_version(self, key: impl Into<Bytes>, version: u64) -> Self {
        self.require(PreconditionKind::KeyAtVersion(v1::KeyAtVersion { key: key.into(), version }))
    }

    /// The key was neither written nor deleted after this version.
    #[must_use]
    pub fn require_unchanged(self, key: impl Into<Bytes>, since: u64) -> Self {
        let key = key.into();
        let kind = v1::KeyAtVersion { key, version: since };
        self.require(PreconditionKind::KeyUnchangedSince(kind))
    }

    /// No key in the range was written or deleted after this version.
    #[must_use]
    pub fn require_range_unchanged(self, range: KeyRange, since: u64) -> Self {
        let range = Some(range.into());
        let kind = v1::RangeUnchangedSince { range, version: since };
        self.require(PreconditionKind::RangeUnchangedSince(kind))
    }

    /// The key has this value.
    #[must_use]
    pub fn require_value(self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        let expected = Some(Expected::Value(value.into()));
        self.require(PreconditionKind::ValueEquals(v1::ValueEquals { key: key.into(), expected }))
    }

    /// The key has the value with this blake3 hash.
    #[must_use]
    pub fn require_value_hash(self, key: impl Into<Bytes>, hash: [u8; 32]) -> Self {
        let expected = Some(Expected::ValueHash(Bytes::copy_from_slice(&hash)));
        self.require(PreconditionKind::ValueEquals(v1::ValueEquals { key: key.into(), expected }))
    }

    /// Sets the key's value. An empty value is a value.
    #[must_use]
    pub fn put(self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.then(MutationKind::Put(v1::Put { key: key.into(), value: value.into() }))
    }

    /// Removes the key, if it is there.
    #[must_use]
    pub fn delete(self, key: impl Into<Bytes>) -> Self {
        self.then(MutationKind::Delete(key.into()))
    }

    /// Removes every key of the range.
    #[must_use]
    pub fn delete_range(self, range: KeyRange) -> Self {
        self.then(MutationKind::DeleteRange(range.into()))
    }

    /// Adds to a 64-bit integer. An absent key counts as 0. The sum is in the
    /// answer: see [`Accepted::sums`](crate::Accepted::sums).
    #[must_use]
    pub fn add(self, key: impl Into<Bytes>, delta: i64) -> Self {
        self.then(MutationKind::Add(v1::Add { key: key.into(), delta }))
    }

    fn require(mut self, kind: PreconditionKind) -> Self {
        self.preconditions.push(v1::Precondition { kind: Some(kind) });
        self
    }

    pub(crate) fn then(mut self, kind: MutationKind) -> Self {
        self.mutations.push(v1::Mutation { kind: Some(kind) });
        self
    }
}
