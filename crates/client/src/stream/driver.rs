//! The loop behind a stream of operations.

use std::collections::VecDeque;
use std::net::SocketAddr;

use futures::StreamExt;
use futures::stream::BoxStream;
use headwater_proto::v1;
use headwater_proto::v1::submit_stream_response::Result as WireResult;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use crate::call::GaveUp;
use crate::client::write_service;
use crate::failure::{Determinacy, Failure};
use crate::operation::Operation;
use crate::pool::Route;
use crate::session::Session;
use crate::stream::{OnRefusal, StreamAnswer, StreamOptions};
use crate::submit::{SubmitError, refused};

pub(super) struct Driver {
    session: Session,
    input: BoxStream<'static, Operation>,
    options: StreamOptions,
    is_input_over: bool,
    /// Unanswered, in the order in which they were sent or are to be sent.
    pending: VecDeque<Pending>,
    /// Refused for a reason that passes; sent again at their time.
    waiting: Vec<(Instant, Pending)>,
    answers: VecDeque<StreamAnswer>,
    connection: Option<Connection>,
    /// Failures since the last answer.
    failures: u32,
    /// The last server, where another one is to be preferred.
    avoid: Option<SocketAddr>,
    /// When the server last answered, or was first owed an answer.
    heard_at: Instant,
}

struct Pending {
    operation: Operation,
    request: v1::SubmitRequest,
    read_at: Instant,
    failures: u32,
    /// Some attempt may have been applied.
    in_doubt: bool,
}

struct Connection {
    /// Holds as many as the window, so that sending never waits.
    requests: mpsc::Sender<v1::SubmitRequest>,
    responses: Streaming<v1::SubmitStreamResponse>,
    from: SocketAddr,
}

/// What happened next.
enum Event {
    Read(Option<Operation>),
    Heard(Option<Result<v1::SubmitStreamResponse, Status>>),
    TimePassed,
}

impl Driver {
    pub(super) fn new(
        session: Session,
        input: BoxStream<'static, Operation>,
        options: StreamOptions,
    ) -> Self {
        Self {
            session,
            input,
            options,
            is_input_over: false,
            pending: VecDeque::new(),
            waiting: Vec::new(),
            answers: VecDeque::new(),
            connection: None,
            failures: 0,
            avoid: None,
            heard_at: Instant::now(),
        }
    }

    pub(super) async fn next(&mut self) -> Option<StreamAnswer> {
        loop {
            if let Some(answer) = self.answers.pop_front() {
                return Some(answer);
            }
            if self.is_input_over && self.pending.is_empty() && self.waiting.is_empty() {
                return None;
            }
            if self.connection.is_none() && !self.pending.is_empty() {
                self.connect().await;
                continue;
            }
            match self.event().await {
                Event::Read(Some(operation)) => self.take(operation).await,
                Event::Read(None) => self.is_input_over = true,
                Event::Heard(Some(Ok(response))) => self.hear(response),
                Event::Heard(Some(Err(status))) => self.lose(&Failure::from_status(&status)),
                Event::Heard(None) => self.lose(&Failure::unanswered()),
                Event::TimePassed => self.look_at_the_clock(),
            }
        }
    }

    async fn event(&mut self) -> Event {
        let has_room = self.pending.len() + self.waiting.len() < self.options.window;
        let wake_at = self.wake_at();
        let hearing = async {
            match &mut self.connection {
                Some(connection) => connection.responses.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // Answers first: they make room, and a full window reads nothing.
            biased;
            response = hearing => Event::Heard(response),
            () = sleep_until(wake_at) => Event::TimePassed,
            operation = self.input.next(), if has_room && !self.is_input_over => {
                Event::Read(operation)
            }
        }
    }

    /// When something has to be done though nothing was heard.
    fn wake_at(&self) -> Option<Instant> {
        let silence = Some(self.heard_at + self.options.silence_max)
            .filter(|_| self.connection.is_some() && !self.pending.is_empty());
        let given_up = self.pending.iter().map(|it| it.read_at + self.options.give_up_after).min();
        let again = self.waiting.iter().map(|it| it.0).min();
        [silence, given_up, again].into_iter().flatten().min()
    }

    /// Takes an operation from the input into the window.
    async fn take(&mut self, mut operation: Operation) {
        let deadline = self.session.client.deadline_from_now();
        if let Err(gave_up) = self.session.pin_issue_version(&mut operation, deadline).await {
            return self.answer(operation, gave_up);
        }
        let request = match self.session.request(&operation) {
            Ok(request) => request,
            Err(failure) => return self.answer(operation, refused(failure, false)),
        };
        let read_at = Instant::now();
        self.send(Pending { operation, request, read_at, failures: 0, in_doubt: false });
    }

    /// Puts an operation behind all that were sent.
    fn send(&mut self, pending: Pending) {
        if self.pending.is_empty() {
            self.heard_at = Instant::now();
        }
        let sent = match &self.connection {
            Some(connection) => connection.requests.try_send(pending.request.clone()),
            None => Ok(()),
        };
        self.pending.push_back(pending);
        // Room for the whole window was made, so the connection is what is gone.
        if sent.is_err() {
            self.lose(&Failure::unanswered());
        }
    }

    fn hear(&mut self, response: v1::SubmitStreamResponse) {
        self.heard_at = Instant::now();
        self.failures = 0;
        if let Some(connection) = &self.connection {
            self.session.client.inner.writers.answered(connection.from);
        }
        let id = response.operation_id;
        let Some(at) = self.pending.iter().position(|it| it.operation.id().as_str() == id) else {
            tracing::debug!(operation = id, "an answer to nothing that was asked");
            return;
        };
        let Some(pending) = self.pending.remove(at) else { return };
        let result = match response.result {
            Some(WireResult::Response(answer)) => self.session.outcome(answer, pending.in_doubt),
            Some(WireResult::ErrorStatus(bytes)) => {
                return self.refuse(pending, Failure::from_bytes(&bytes));
            }
            None => Err(refused(Failure::malformed("an answer has no result"), true)),
        };
        let id = pending.operation.id().clone();
        let result = result.map_err(|gave_up| SubmitError::new(gave_up, pending.operation));
        self.answers.push_back(StreamAnswer { id, result });
    }

    /// The server answered one operation with an error.
    fn refuse(&mut self, mut pending: Pending, failure: Failure) {
        pending.in_doubt |= failure.determinacy == Determinacy::MaybeApplied;
        pending.failures += 1;
        let is_passing = failure.is_worth_repeating();
        let client = &self.session.client.inner;
        let pause =
            client.retry.backoff.pause(pending.failures, failure.retry_after, &client.random);
        let again_at = Instant::now() + pause;
        let has_time = again_at < pending.read_at + self.options.give_up_after;
        match self.options.on_refusal {
            OnRefusal::SendAgain if is_passing && has_time => {
                self.waiting.push((again_at, pending));
            }
            OnRefusal::SendAgain | OnRefusal::Report => {
                let (last, in_doubt) = (Some(Box::new(failure)), pending.in_doubt);
                let gave_up = GaveUp { last, in_doubt, is_expired: is_passing };
                self.answer(pending.operation, gave_up);
            }
        }
    }

    /// The connection is gone, and with it the answers to all that was sent.
    fn lose(&mut self, failure: &Failure) {
        let Some(connection) = self.connection.take() else { return };
        self.failed_at(connection.from, failure);
    }

    fn failed_at(&mut self, from: SocketAddr, failure: &Failure) {
        tracing::debug!(error = %failure, unanswered = self.pending.len(), "a stream broke off");
        self.failures = self.failures.saturating_add(1);
        self.avoid = Some(from).filter(|_| failure.is_reason_to_move());
        if failure.is_the_peers() {
            self.session.client.inner.writers.failed(from);
        }
        for pending in &mut self.pending {
            pending.in_doubt |= failure.determinacy == Determinacy::MaybeApplied;
        }
        if !failure.is_worth_repeating() {
            self.answer_all(failure);
        }
    }

    /// Makes one attempt at a connection, on which everything unanswered is sent
    /// again, in order.
    async fn connect(&mut self) {
        let client = self.session.client.clone();
        if self.failures > 0 {
            let pause = client.inner.retry.backoff.pause(self.failures, None, &client.inner.random);
            tokio::time::sleep(pause).await;
        }
        self.give_up_on_the_late();
        let route = Route::History(&self.session.history);
        let picked = match client.inner.writers.pick(route, self.avoid).await {
            Ok(picked) => picked,
            Err(unresolved) => {
                tracing::debug!(error = %unresolved, "no writer to connect to");
                self.failures = self.failures.saturating_add(1);
                return;
            }
        };
        let (requests, receiver) = mpsc::channel(self.options.window);
        for pending in &self.pending {
            // The channel holds the window, and the receiver is here.
            if requests.try_send(pending.request.clone()).is_err() {
                break;
            }
        }
        let shown = picked.token.shown();
        let mut service = write_service(picked.channel);
        let time = client.inner.retry.attempt_max;
        let attempt = client.inner.traces.attempt(time);
        let opening = service.submit_stream(attempt.open_ended(ReceiverStream::new(receiver)));
        let mut failure = match tokio::time::timeout(time, opening).await {
            Ok(Ok(response)) => {
                let (responses, from) = (response.into_inner(), picked.address);
                self.connection = Some(Connection { requests, responses, from });
                self.heard_at = Instant::now();
                return;
            }
            Ok(Err(status)) => Failure::from_status(&status),
            Err(_) => Failure::unanswered(),
        };
        picked.token.look_again(shown.as_ref(), &mut failure);
        self.failed_at(picked.address, &failure);
    }

    fn look_at_the_clock(&mut self) {
        self.give_up_on_the_late();
        let now = Instant::now();
        let mut i = 0;
        while i < self.waiting.len() {
            if self.waiting[i].0 <= now {
                let (_, pending) = self.waiting.swap_remove(i);
                self.send(pending);
            } else {
                i += 1;
            }
        }
        if !self.pending.is_empty() && now >= self.heard_at + self.options.silence_max {
            self.lose(&Failure::unanswered());
        }
    }

    /// Answers those whose time is up.
    fn give_up_on_the_late(&mut self) {
        let is_connected = self.connection.is_some();
        let late = Instant::now().checked_sub(self.options.give_up_after);
        let (gone, kept) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition::<VecDeque<_>, _>(|it| late.is_some_and(|late| it.read_at <= late));
        self.pending = kept;
        for pending in gone {
            let in_doubt = pending.in_doubt || is_connected;
            let last = if in_doubt {
                Failure::unanswered()
            } else {
                Failure::not_sent("no writer could be reached in time")
            };
            let gave_up = GaveUp { last: Some(Box::new(last)), in_doubt, is_expired: true };
            self.answer(pending.operation, gave_up);
        }
    }

    /// Answers everything that was sent with one error, which repeating would
    /// not mend.
    fn answer_all(&mut self, failure: &Failure) {
        for pending in std::mem::take(&mut self.pending) {
            let gave_up = refused(failure.clone(), pending.in_doubt);
            self.answer(pending.operation, gave_up);
        }
    }

    fn answer(&mut self, operation: Operation, gave_up: GaveUp) {
        let id = operation.id().clone();
        let result = Err(SubmitError::new(gave_up, operation));
        self.answers.push_back(StreamAnswer { id, result });
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
