//! Parties that follow a history by watches: over whichever replica lives, from
//! where the last watch ended, at a pace of their own.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use headwater_core::id::HistoryName;
use headwater_core::operation::KeyRange;
use headwater_core::version::StateVersion;
use headwater_replica::{
    KeyFilter, ReadFailure, SnapshotMode, WatchEnd, WatchFailure, WatchMessage, WatchOptions,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::dice::Dice;
use crate::requests;
use crate::truth::Watched;
use crate::world::World;

/// How long a watch may take to begin.
const BEGIN_MAX: Duration = Duration::from_secs(10);

/// Messages on their way: what a connection has room for.
const ON_THE_WAY: usize = 4;

/// One party.
pub(crate) struct Watching {
    world: Arc<World>,
    index: usize,
    dice: Dice,
    history: HistoryName,
    head_key: String,
    filter: KeyRange,
    /// What it was told so far.
    told: Watched,
    /// Whether the state may take the place of versions that are gone.
    takes_state: bool,
}

/// What comes over a connection.
enum Told {
    Refused(WatchFailure),
    Message(Result<WatchMessage, WatchEnd>),
}

impl Watching {
    pub(crate) fn new(world: &Arc<World>, index: usize) -> Self {
        let history = world.histories[index % world.histories.len()].clone();
        let dice = Dice::new(world.plan.seed, &format!("watch {index}"));
        let filter = if dice.percent(60) {
            KeyRange::everything()
        } else {
            requests::draw_range(&dice, &world.plan.mix)
        };
        Self {
            head_key: history.head_key(),
            history,
            index,
            told: Watched::from_the_beginning(filter.clone()),
            filter,
            takes_state: false,
            dice,
            world: Arc::clone(world),
        }
    }

    /// Watches until everything is told that there is, once everything works.
    pub(crate) async fn run(mut self) {
        while !self.is_at_the_end() {
            self.watch_once().await;
            sleep(self.dice.ms(1, 300)).await;
        }
        self.world.trace.event(format_args!("watch {}: is at the end", self.index));
    }

    fn is_at_the_end(&self) -> bool {
        self.world.is_over() && self.world.truth().has_told_all(&self.head_key, &self.told)
    }

    async fn watch_once(&mut self) {
        let n_writers = self.world.plan.writers.len();
        let replica = n_writers + self.dice.index(self.world.plan.replicas.len());
        let after = StateVersion::new(self.told.after());
        let options = WatchOptions {
            after: Some(after),
            filter: KeyFilter::of(vec![self.filter.clone()]).unwrap_or(KeyFilter::everything()),
            previous_values: false,
            progress: self.dice.ms(50, 2_000),
            snapshot: match (self.takes_state, self.dice.below(10)) {
                (false, 1..) => SnapshotMode::Never,
                (true, 1..) => SnapshotMode::IfRetired,
                (_, 0) => SnapshotMode::First,
            },
        };
        self.world.trace.event(format_args!(
            "watch {}: after {after} at process {replica}, {:?}",
            self.index, options.snapshot
        ));
        self.told.begins();
        let mut messages = self.open(replica, options);
        // A caller that goes away, at a moment that nobody expects.
        let mut left = self.dice.pick(&[1, 10, 100, 1_000]);
        while 0 < left && !self.is_at_the_end() {
            let Some(told) = messages.recv().await else { return };
            left -= 1;
            if !self.hear(told) {
                return;
            }
            if self.dice.percent(5) {
                sleep(self.dice.ms(1, 500)).await;
            }
        }
    }

    /// A connection to a replica. It ends with the process, or when nobody
    /// listens.
    fn open(&self, replica: usize, options: WatchOptions) -> mpsc::Receiver<Told> {
        let (tell, told) = mpsc::channel(ON_THE_WAY);
        let history = self.history.clone();
        self.world.processes[replica].serve(move |serving| async move {
            let Some(reader) = serving.reader(&history) else { return };
            let watch = match reader.watch(options, Instant::now() + BEGIN_MAX).await {
                Ok(watch) => watch,
                Err(why) => {
                    let _gone = tell.send(Told::Refused(why)).await;
                    return;
                }
            };
            let mut watch = pin!(watch);
            while let Some(message) = watch.next().await {
                if tell.send(Told::Message(message)).await.is_err() {
                    return;
                }
            }
        });
        told
    }

    /// Takes in what is told; whether more may come.
    fn hear(&mut self, told: Told) -> bool {
        let why = match told {
            Told::Message(Ok(message)) => {
                let event =
                    self.world.trace.event(format_args!("watch {}: {message:?}", self.index));
                let mut truth = self.world.truth();
                truth.watched(&self.head_key, &mut self.told, event, &message);
                return true;
            }
            Told::Message(Err(WatchEnd { why, resume_after })) => {
                self.world
                    .trace
                    .event(format_args!("watch {}: ends at {resume_after}: {why}", self.index));
                let resume_after = resume_after.get();
                self.world.truth().watch_ended(&self.head_key, &self.told, resume_after);
                why
            }
            Told::Refused(why) => {
                self.world.trace.event(format_args!("watch {}: refused: {why}", self.index));
                why
            }
        };
        if let WatchFailure::Read(failure) = &why {
            // Whoever wants only changes has to take the state then.
            self.takes_state |= matches!(failure, ReadFailure::VersionRetired { .. });
            self.world.truth().watch_failed(&self.head_key, &self.told, failure);
        }
        false
    }
}
