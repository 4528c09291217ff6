//! Many operations, in order, over one connection.
//!
//! ```text
//! operations -> window -> SubmitStream -> answers
//!                 ^                          |
//!                 +--- unanswered, again ----+   (a new connection, same order)
//! ```
//!
//! # Invariants
//!
//! - At most [`StreamOptions::window`] operations are unanswered; the input is
//!   not read beyond that.
//! - Every operation of the input is answered exactly once.
//! - After a connection was lost, what is unanswered is sent again, in the same
//!   order, with the same ids and issue versions, before anything new.

mod driver;

use std::time::Duration;

use futures::Stream;
use headwater_proto::limits::STREAM_UNANSWERED_MAX;

use self::driver::Driver;
use crate::id::OperationId;
use crate::operation::Operation;
use crate::outcome::Outcome;
use crate::session::Session;
use crate::submit::SubmitError;

/// How a stream of operations is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// Most operations unanswered at a time, at least 1 and at most 4,096.
    pub window: usize,
    /// Longest silence of a server that owes answers; then another connection is
    /// made.
    pub silence_max: Duration,
    /// Longest time for one operation, from when it was read from the input.
    pub give_up_after: Duration,
    /// What to do with an operation that was refused for a reason that passes.
    pub on_refusal: OnRefusal,
}

/// What to do with an operation that a server refuses for a reason that passes:
/// a full queue, a contended head, a store that is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRefusal {
    /// Report it. What is accepted, is accepted in the order of the input.
    #[default]
    Report,
    /// Send it again after a pause, behind what was sent meanwhile. For
    /// operations that do not depend on each other.
    SendAgain,
}

impl Default for StreamOptions {
    /// 256 operations, 30 seconds of silence, 2 minutes for one operation.
    fn default() -> Self {
        Self {
            window: 256,
            silence_max: Duration::from_secs(30),
            give_up_after: Duration::from_secs(120),
            on_refusal: OnRefusal::default(),
        }
    }
}

/// What became of one operation of a stream.
#[derive(Clone, Debug)]
#[must_use = "an operation may have been rejected, or its outcome may be unknown"]
pub struct StreamAnswer {
    /// Which one.
    pub id: OperationId,
    /// As [`Session::submit`] would have answered.
    pub result: Result<Outcome, SubmitError>,
}

impl Session {
    /// Submits operations in order. Those that are accepted are accepted in the
    /// order of the input, as long as no connection is lost and `on_refusal`
    /// reports; after that, an operation that a server had refused without our
    /// hearing of it may be accepted behind later ones.
    ///
    /// Answers come as outcomes become known, not always in order; the stream
    /// ends when the input has ended and everything is answered. Nothing happens
    /// while the answers are not asked for.
    ///
    /// ```no_run
    /// use futures::StreamExt;
    /// use headwater_client::{Outcome, Session, StreamOptions};
    ///
    /// # async fn example(session: Session, lines: Vec<String>) {
    /// let client = session.client().clone();
    /// let puts = lines.into_iter().map(move |line| client.operation().put(line, "1"));
    /// let answers =
    ///     session.submit_stream(futures::stream::iter(puts), StreamOptions::default());
    /// let mut answers = std::pin::pin!(answers);
    /// while let Some(answer) = answers.next().await {
    ///     match answer.result {
    ///         Ok(Outcome::Accepted(_)) => {}
    ///         Ok(Outcome::Rejected(rejected)) => eprintln!("{}: {rejected:?}", answer.id),
    ///         Ok(Outcome::Unknown(unknown)) => eprintln!("{}: {unknown:?}", answer.id),
    ///         Err(error) => eprintln!("{}: {error}", answer.id),
    ///     }
    /// }
    /// # }
    /// ```
    pub fn submit_stream<S>(
        &self,
        operations: S,
        options: StreamOptions,
    ) -> impl Stream<Item = StreamAnswer> + Send + use<S>
    where
        S: Stream<Item = Operation> + Send + 'static,
    {
        let window = options.window.clamp(1, STREAM_UNANSWERED_MAX);
        let options = StreamOptions { window, ..options };
        let driver = Driver::new(self.clone(), Box::pin(operations), options);
        futures::stream::unfold(driver, |mut driver| async move {
            driver.next().await.map(|answer| (answer, driver))
        })
    }
}
