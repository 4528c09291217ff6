//! One run: lines in, answers out, progress recorded.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use headwater_client::{
    Client, HistoryId, IssueVersion, OnRefusal, Operation, OperationId, Outcome, Session,
    StreamAnswer, StreamOptions, Token,
};
use indicatif::ProgressBar;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::identity::ImportId;
use super::input::{Event, Identified};
use super::ledger::{Ledger, Mark, Ready};
use super::line::{self, Line};
use super::plan::Plan;
use super::state::{Issue, SPAN_VERSIONS, State, StateFile};
use super::summary::Summary;
use crate::exit::Exit;
use crate::failed::Failed;
use crate::issue::Sent;
use crate::progress;

/// After a signal, how long answers that are under way are waited for. What is
/// not answered by then is found by the next run.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// How a run is driven.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunOptions {
    pub(super) window: usize,
    pub(super) give_up_after: Duration,
    pub(super) epoch: u64,
    pub(super) is_quiet: bool,
}

/// One run.
pub(super) struct Run {
    client: Client,
    session: Session,
    input: Identified,
    state: State,
    file: Option<Arc<StateFile>>,
    options: RunOptions,
    ledger: Ledger,
    /// Where the run began: everything up to here is skipped.
    begun: Mark,
    /// Spans from here on were begun by this run.
    own_spans_from: u64,
    /// The last line read, skipped ones included.
    read: Mark,
    /// Read, and waiting for room.
    next: Option<(Ready, Mark)>,
    /// Why nothing more is sent.
    stopped: Option<Stopped>,
}

/// Why nothing more is sent.
enum Stopped {
    End,
    Signal,
    Failed(Failed),
}

impl Run {
    pub(super) fn new(
        client: &Client,
        plan: Plan,
        input: Identified,
        file: Option<StateFile>,
        options: RunOptions,
    ) -> Self {
        let Plan { state, state_version } = plan;
        // The id came from an answer, and was checked against the state's.
        let session = match HistoryId::new(state.history_id.clone()) {
            Ok(history_id) => {
                client.session_from(&*state.history, Token { history_id, state_version })
            }
            Err(_) => client.session(&*state.history),
        };
        let begun = state.confirmed;
        Self {
            client: client.clone(),
            session: session.with_writer_epoch(options.epoch),
            input,
            file: file.map(Arc::new),
            options,
            ledger: Ledger::new(options.window, begun),
            begun,
            own_spans_from: u64::MAX,
            read: Mark::default(),
            next: None,
            stopped: None,
            state,
        }
    }

    /// Runs to the end, or to what stops it. Returns why it failed, once all
    /// that was sent is settled or given up, and the state is saved.
    ///
    /// # Errors
    ///
    /// Only where the state could not be saved.
    pub(super) async fn finish(
        mut self,
        summary: &mut Summary,
        signal: WaitForCancellationFutureOwned,
    ) -> Result<Option<Failed>, Failed> {
        let total = self.input.content.map(|it| it.lines);
        let bar = progress::bar(total, "lines", self.options.is_quiet);
        self.drive(summary, signal, &bar).await;
        bar.finish_and_clear();
        let is_at_end = matches!(self.stopped, Some(Stopped::End));
        self.state.confirm(self.ledger.confirmed());
        self.state.is_complete =
            is_at_end && self.ledger.is_empty() && self.state.confirmed == self.read;
        if self.state.is_complete {
            self.state.spans.clear();
        }
        self.save().await?;
        summary.conclude(&self.state);
        if let Some(token) = self.session.token() {
            summary.state_version = token.state_version;
        }
        Ok(match self.stopped {
            Some(Stopped::Failed(failed)) => Some(failed),
            Some(Stopped::Signal) => {
                summary.is_interrupted = true;
                None
            }
            Some(Stopped::End) | None => None,
        })
    }

    async fn drive(
        &mut self,
        summary: &mut Summary,
        signal: WaitForCancellationFutureOwned,
        bar: &ProgressBar,
    ) {
        let mut lines = self.input.source.clone().lines();
        let (sender, receiver) = mpsc::channel(1);
        let mut sender = Some(sender);
        let answers = self.session.submit_stream(operations(receiver), self.stream_options());
        let mut answers = std::pin::pin!(answers);
        let mut signal = std::pin::pin!(signal);
        let mut give_up_at = None;
        loop {
            if self.stopped.is_some() {
                // The end of its input is what ends the stream.
                sender = None;
            }
            let has_room = self.next.as_ref().is_some_and(|it| self.ledger.has_room(&it.0));
            let room = async {
                match &sender {
                    Some(sender) => sender.reserve().await.ok(),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut signal, if give_up_at.is_none() => {
                    self.stop(Stopped::Signal);
                    give_up_at = Some(Instant::now() + STOP_GRACE);
                }
                () = sleep_until(give_up_at) => return,
                answer = answers.next() => match answer {
                    Some(answer) => self.hear(answer, summary, bar),
                    None => return,
                },
                event = lines.recv(), if self.next.is_none() && sender.is_some() => {
                    self.take(event, summary, bar).await;
                }
                permit = room, if has_room => match (permit, self.next.take()) {
                    (Some(permit), Some((ready, mark))) => {
                        self.ledger.send(&ready, mark.chain);
                        permit.send(self.operation(ready));
                    }
                    (None, _) | (_, None) => return,
                },
            }
        }
    }

    fn stream_options(&self) -> StreamOptions {
        StreamOptions {
            window: self.options.window,
            give_up_after: self.options.give_up_after,
            // Lines under way have different keys, so their order is free.
            on_refusal: OnRefusal::SendAgain,
            ..StreamOptions::default()
        }
    }

    /// The first reason stands, unless a later line may have been applied: that
    /// must not end with the exit code of what was not.
    fn stop(&mut self, why: Stopped) {
        let is_doubt = matches!(&why, Stopped::Failed(it) if it.exit == Exit::InDoubt);
        if is_doubt || self.stopped.is_none() {
            self.stopped = Some(why);
        }
    }

    /// Takes what the reader says.
    async fn take(&mut self, event: Option<Event>, summary: &mut Summary, bar: &ProgressBar) {
        let outcome = match event {
            Some(Event::Line(line)) => self.take_line(line, summary, bar).await,
            Some(Event::End(id)) => self.check_end(id),
            Some(Event::Failed(failed)) => Err(self.advise(failed)),
            None => Err(Failed::new(Exit::Unexpected, "reading the input was cut off")),
        };
        if let Err(failed) = outcome {
            self.stop(Stopped::Failed(failed));
        }
    }

    async fn take_line(
        &mut self,
        line: Line,
        summary: &mut Summary,
        bar: &ProgressBar,
    ) -> Result<(), Failed> {
        let Line { number, bytes } = line;
        let mark = Mark { line: number, chain: self.read.chain.with(&bytes) };
        self.read = mark;
        if number <= self.begun.line {
            summary.skipped += 1;
            bar.inc(1);
            return if number < self.begun.line || mark == self.begun {
                Ok(())
            } else {
                Err(self.input.source.begins_otherwise())
            };
        }
        let entry = line::entry(number, &bytes)
            .map_err(|error| self.advise(self.input.source.malformed(number, &error)))?;
        let Some((key, value)) = entry else {
            self.ledger.skip(mark);
            summary.blank += 1;
            bar.inc(1);
            return Ok(());
        };
        if self.needs_span(number) {
            self.open_span(number).await?;
        }
        let id = self.state.import_id.operation_id(number, &bytes)?;
        self.next = Some((Ready { line: number, id, key, value }, mark));
        Ok(())
    }

    /// Says what to do about input that is not lines of entries. The lines before
    /// it were sent, unless it is of a file that was changed after it was checked.
    fn advise(&self, failed: Failed) -> Failed {
        let is_stdin = self.input.content.is_none();
        if !is_stdin || failed.exit != Exit::Usage {
            return failed;
        }
        failed.advise(if self.file.is_some() {
            "the lines before it were sent; mend it, and run it again with the same lines before \
             it and the same --state: it goes on from here"
        } else {
            "the lines before it were sent, and no state file says so; mend it, and send only \
             what begins here"
        })
    }

    fn check_end(&mut self, id: ImportId) -> Result<(), Failed> {
        if self.input.content.is_some_and(|it| it.id != id) {
            return Err(self.input.source.changed());
        }
        if self.read.line < self.begun.line {
            return Err(self.input.source.shorter());
        }
        self.stop(Stopped::End);
        Ok(())
    }

    /// Whether `line` is of no span, or of one that has had its versions. Only a
    /// span that this run has begun may end early: it knows that it did not send
    /// the line.
    fn needs_span(&self, line: u64) -> bool {
        let Some(span) = self.state.span(line) else { return true };
        let newest = self.session.token().map_or(0, |it| it.state_version);
        let is_used_up = span.issued_from_version.is_some_and(|it| it + SPAN_VERSIONS < newest);
        self.state.issue == Issue::Newest && self.own_spans_from <= span.from_line && is_used_up
    }

    /// Records, durably, from which version the lines from `line` on are sent.
    async fn open_span(&mut self, line: u64) -> Result<(), Failed> {
        let issued_from_version = match self.state.issue {
            Issue::ServiceKept => None,
            Issue::Newest => match self.session.token() {
                Some(token) => Some(token.state_version),
                None => Some(0),
            },
            Issue::Zero => {
                self.check_coverage(line).await?;
                Some(0)
            }
        };
        self.own_spans_from = self.own_spans_from.min(line);
        self.state.confirm(self.ledger.confirmed());
        self.state.begin_span(line, issued_from_version);
        self.save().await
    }

    /// 0 is of use only while the history has every receipt: past that, every
    /// line would be answered `unknown`.
    async fn check_coverage(&self, line: u64) -> Result<(), Failed> {
        let history = self.client.get_history(self.session.history()).await?;
        let from = history.receipt_coverage_from;
        if from <= 1 {
            return Ok(());
        }
        Err(Failed::new(
            Exit::Unknown,
            format!(
                "{} has receipts only from version {from} on by now, so it cannot tell whether \
                 the lines from {line} on were imported by an earlier run that left no state \
                 file; they were not sent",
                history.name
            ),
        )
        .advise("run it again with --fresh if you are certain that there was no earlier run"))
    }

    fn operation(&self, ready: Ready) -> Operation {
        let issue = self.issue(ready.line);
        Operation::new(ready.id, issue).put(ready.key, ready.value)
    }

    fn issue(&self, line: u64) -> IssueVersion {
        self.state.span(line).map_or(IssueVersion::At(0), |it| it.issue())
    }

    fn hear(&mut self, answer: StreamAnswer, summary: &mut Summary, bar: &ProgressBar) {
        let StreamAnswer { id, result } = answer;
        match result {
            Ok(Outcome::Accepted(accepted)) => {
                if self.ledger.settle(&id).is_some() {
                    bar.inc(1);
                    let found = accepted.from_receipt;
                    *(if found { &mut summary.found } else { &mut summary.applied }) += 1;
                }
            }
            Ok(Outcome::Unknown(_)) => {
                if let Some(line) = self.ledger.settle(&id) {
                    bar.inc(1);
                    self.state.unknown_lines.insert(line);
                }
            }
            Ok(Outcome::Rejected(rejected)) => {
                let what = format!("rejected, though it has no precondition: {rejected:?}");
                self.fail(&id, |_, _| Failed::new(Exit::Unexpected, what));
            }
            Err(error) => self.fail(&id, |issue, history_id| {
                Failed::submission(&error, Sent { id: id.clone(), issue, history_id })
            }),
        }
    }

    /// A line ended without an outcome.
    fn fail(
        &mut self,
        id: &OperationId,
        why: impl FnOnce(IssueVersion, Option<HistoryId>) -> Failed,
    ) {
        let Some(line) = self.ledger.fail(id) else { return };
        let history_id = self.session.token().map(|it| it.history_id);
        let failed = why(self.issue(line), history_id).at(&self.input.source.place(line));
        self.stop(Stopped::Failed(
            failed.advise(
                "run the same import again: it goes on from here, and applies nothing twice",
            ),
        ));
    }

    async fn save(&self) -> Result<(), Failed> {
        let Some(file) = self.file.clone() else { return Ok(()) };
        let state = self.state.clone();
        let saved = tokio::task::spawn_blocking(move || file.save(&state)).await;
        saved.map_err(|_| Failed::new(Exit::Unexpected, "saving the state was cut off"))?
    }
}

fn operations(
    receiver: mpsc::Receiver<Operation>,
) -> impl Stream<Item = Operation> + Send + 'static {
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|it| (it, receiver))
    })
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
