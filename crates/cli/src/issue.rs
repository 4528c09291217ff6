//! The identity of an operation that this process sends: its id, and from which
//! version on it can have been applied (PROTOCOL 5).
//!
//! A person who repeats a command wants the operation to be applied once. So
//! every command that writes says the id and the issue version that it used,
//! and takes them back as options.
//!
//! | given | issue version |
//! | --- | --- |
//! | nothing | a fresh id, and the version current before the first attempt |
//! | `--operation-id` | 0: this process cannot know when the id was first sent, and 0 is always true |
//! | `--operation-id --issued-from V` | V |
//! | `--operation-id --service-kept` | the writer keeps it |

use headwater_client::{Client, HistoryId, IssueVersion, Operation, OperationId, Session, Token};
use serde_json::{Map, Value};

use crate::failed::Failed;

/// How an operation is named, for the commands that write.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct IssueOptions {
    /// The operation's id: 1 to 64 bytes of [A-Za-z0-9._:-]. Sent again, it is
    /// applied once. Default: a random one, which is printed.
    #[arg(long, value_name = "ID", help_heading = "Operation")]
    pub operation_id: Option<OperationId>,
    /// The version that was current when the id was first sent, as the first
    /// try printed it. Default: the current version for a random id, 0 for a
    /// given one.
    #[arg(long, value_name = "VERSION", help_heading = "Operation")]
    pub issued_from: Option<u64>,
    /// Let the writer keep the issue version, beside the operation: one more
    /// object in the store, and no doubt however late the retry.
    #[arg(long, conflicts_with = "issued_from", help_heading = "Operation")]
    pub service_kept: bool,
    /// The writer epoch, for an exclusive history: see `raise-epoch`.
    #[arg(long, value_name = "EPOCH", default_value_t = 0, help_heading = "Operation")]
    pub epoch: u64,
    /// The id that the history must have; another history of this name is not
    /// written to.
    #[arg(long, value_name = "HISTORY_ID", help_heading = "Operation")]
    pub history_id: Option<HistoryId>,
}

/// What was, or is to be, sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) id: OperationId,
    pub(crate) issue: IssueVersion,
    pub(crate) history_id: Option<HistoryId>,
}

impl Sent {
    /// The options that make a command a retry.
    pub(crate) fn options(&self) -> String {
        let mut text = format!("--operation-id {}", self.id);
        match self.issue {
            IssueVersion::At(version) => text = format!("{text} --issued-from {version}"),
            IssueVersion::ServiceKept => text += " --service-kept",
            IssueVersion::Newest => {}
        }
        if let Some(history_id) = &self.history_id {
            text = format!("{text} --history-id {history_id}");
        }
        text
    }

    /// Adds the same to a JSON object.
    pub(crate) fn put(&self, object: &mut Map<String, Value>) {
        object.insert("operationId".to_owned(), self.id.as_str().into());
        match self.issue {
            IssueVersion::At(version) => {
                object.insert("issuedFromVersion".to_owned(), version.into());
            }
            IssueVersion::ServiceKept => {
                object.insert("serviceKept".to_owned(), true.into());
            }
            IssueVersion::Newest => {}
        }
        if let Some(history_id) = &self.history_id {
            object.insert("historyId".to_owned(), history_id.as_str().into());
        }
    }
}

impl IssueOptions {
    /// Names an operation, and opens the session that it is to be sent in.
    ///
    /// The version is asked for here, and not left to the client, so that it can
    /// be told however the submission ends.
    pub(crate) async fn name(
        &self,
        client: &Client,
        history: &str,
    ) -> Result<(Session, Operation, Sent), Failed> {
        let id = self.operation_id.clone().unwrap_or_else(|| client.operation_id());
        let mut history_id = self.history_id.clone();
        let issue = match (self.service_kept, self.issued_from, &self.operation_id) {
            (true, ..) => IssueVersion::ServiceKept,
            (false, Some(version), _) => IssueVersion::At(version),
            (false, None, Some(_)) => IssueVersion::At(0),
            (false, None, None) => {
                let current = client.get_history(history).await?;
                history_id.get_or_insert(current.history_id);
                IssueVersion::At(current.state_version)
            }
        };
        let session = match &history_id {
            Some(history_id) => {
                let token = Token { history_id: history_id.clone(), state_version: 0 };
                client.session_from(history, token)
            }
            None => client.session(history),
        };
        let operation = Operation::new(id.clone(), issue);
        Ok((session.with_writer_epoch(self.epoch), operation, Sent { id, issue, history_id }))
    }
}
