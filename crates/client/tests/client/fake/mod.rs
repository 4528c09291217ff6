//! A deployment in memory: servers that follow a script, and a network whose
//! connections a test can cut. No socket, so paused time works.

mod model;
mod network;
mod services;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headwater_client::{Client, ClientBuilder};
use headwater_proto::{reason, v1};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

pub(crate) use self::model::{HISTORY, HISTORY_ID, Model};
pub(crate) use self::network::FakeNetwork;

/// What a writer does with the next submission.
pub(crate) enum Step {
    /// Decides and answers, as a writer does.
    Serve,
    /// Decides, and then the answer is lost.
    ServeAndLose,
    /// The request is lost, as far as the caller can tell.
    Lose,
    /// Answers with an error.
    Refuse(Status),
    /// Answers this.
    Say(v1::SubmitResponse),
    /// Never answers.
    Hang,
    /// Something happens first; then as `Serve`.
    After(Box<dyn FnOnce(&mut Model) + Send>),
    /// In a stream: the stream ends without an answer.
    EndStream,
}

/// What one watch tells, and how it ends.
pub(crate) struct Watched {
    pub(crate) messages: Vec<v1::WatchResponse>,
    pub(crate) end: WatchedEnd,
}

pub(crate) enum WatchedEnd {
    /// With an error.
    Status(Status),
    /// Without one.
    Ended,
    /// Not at all.
    Silent,
}

/// What the servers share, and what they were asked.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) model: Model,
    /// Steps for the next submissions; `Serve` once it is empty.
    pub(crate) script: VecDeque<Step>,
    /// Errors for the next reads; served once it is empty.
    pub(crate) read_refusals: VecDeque<Status>,
    /// Every submission received, with the server that received it.
    pub(crate) submissions: Vec<(SocketAddr, v1::SubmitRequest)>,
    /// Every single-key read received, with the server that received it.
    pub(crate) reads: Vec<(SocketAddr, v1::GetRequest)>,
    pub(crate) lookups: Vec<v1::GetOperationRequest>,
    /// What the next watches tell, and how each ends.
    pub(crate) watch_script: VecDeque<Watched>,
    /// Every watch begun, with the server that it was begun at.
    pub(crate) watches: Vec<(SocketAddr, v1::WatchRequest)>,
    /// The time that each submission was given.
    pub(crate) timeouts: Vec<Option<String>>,
    /// A replica that breaks the contract: pages are of the newest version.
    pub(crate) forgets_scans: bool,
    /// How old the next answers say that their proof is; new, once it is empty.
    pub(crate) proof_ages: VecDeque<Option<prost_types::Duration>>,
    pub(crate) streams_opened: usize,
    pub(crate) heads_read: usize,
}

#[derive(Clone, Default)]
pub(crate) struct Deployment {
    pub(crate) shared: Arc<Mutex<Shared>>,
    pub(crate) network: FakeNetwork,
}

pub(crate) fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 7070))
}

impl Deployment {
    /// Servers 1 to `n`, behind the name `servers`.
    pub(crate) fn of(n: u8) -> Self {
        let deployment = Self::default();
        deployment.network.name("servers", (1..=n).map(address));
        for number in 1..=n {
            deployment.start(number);
        }
        deployment
    }

    pub(crate) fn start(&self, number: u8) {
        let at = address(number);
        services::serve(Arc::clone(&self.shared), at, self.network.listen(at));
    }

    pub(crate) fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    pub(crate) fn builder(&self) -> ClientBuilder {
        Client::builder().writers(["servers:7070"]).seed(7).network(self.network.clone())
    }

    pub(crate) fn script(&self, steps: impl IntoIterator<Item = Step>) {
        self.shared.lock().unwrap().script.extend(steps);
    }

    pub(crate) fn refuse_reads(&self, statuses: impl IntoIterator<Item = Status>) {
        self.shared.lock().unwrap().read_refusals.extend(statuses);
    }

    pub(crate) fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap()
    }

    pub(crate) fn submissions(&self) -> Vec<v1::SubmitRequest> {
        self.shared.lock().unwrap().submissions.iter().map(|it| it.1.clone()).collect()
    }

    pub(crate) fn submission_servers(&self) -> Vec<SocketAddr> {
        self.shared.lock().unwrap().submissions.iter().map(|it| it.0).collect()
    }

    pub(crate) fn read_servers(&self) -> Vec<SocketAddr> {
        self.shared.lock().unwrap().reads.iter().map(|it| it.0).collect()
    }
}

/// An error as a server says it, not applied.
pub(crate) fn refusal(reason: &str, code: Code, retry_after: Option<Duration>) -> Status {
    status(reason, code, reason::NOT_APPLIED, retry_after)
}

/// A publication in doubt, as a writer says it.
pub(crate) fn in_doubt() -> Status {
    let (reason, retry_after) = (reason::PUBLICATION_IN_DOUBT, Some(Duration::from_millis(10)));
    status(reason, Code::Unavailable, reason::MAYBE_APPLIED, retry_after)
}

fn status(reason: &str, code: Code, determinacy: &str, retry_after: Option<Duration>) -> Status {
    let metadata = [(reason::DETERMINACY.to_owned(), determinacy.to_owned())];
    let mut details = ErrorDetails::with_error_info(reason, reason::DOMAIN, metadata);
    if let Some(delay) = retry_after {
        details.set_retry_info(Some(delay));
    }
    Status::with_error_details(code, reason, details)
}
