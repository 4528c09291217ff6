//! Liveness: a run in which nothing more goes wrong answers everybody.
//!
//! Stateright's "eventually" does not see a run that goes round in circles. So
//! each state is run to its end here, by a scheduler that is fair: everybody
//! gets a turn in every round.

use crate::client::Heard;
use crate::promise::{Broken, Promise, ensure};
use crate::setup::Setup;
use crate::sweeper::Sweeper;
use crate::world::World;

/// More than enough rounds: a publisher needs about ten for each of its
/// questions.
const ROUNDS_MAX: usize = 500;

impl World {
    /// Runs the world to its end twice: what is late never comes, or comes
    /// first.
    ///
    /// # Errors
    ///
    /// [`Promise::Finishes`], or what else a run breaks.
    pub fn check_finishes(&self, setup: &Setup) -> Result<(), Broken> {
        let mut never = self.clone();
        never.late.clear();
        never.finish(setup)?;
        if self.late.is_empty() {
            return Ok(());
        }
        let mut first = self.clone();
        while !first.late.is_empty() {
            first.arrive(setup, 0)?;
        }
        first.finish(setup)
    }

    fn finish(&mut self, setup: &Setup) -> Result<(), Broken> {
        for _ in 0..ROUNDS_MAX {
            if !self.round(setup)? {
                return self.check_finished();
            }
        }
        Err(Broken { promise: Promise::Finishes, what: "it goes on for ever".into() })
    }

    /// One turn for everybody; `false` when nobody has anything to do.
    fn round(&mut self, setup: &Setup) -> Result<bool, Broken> {
        let mut is_busy = false;
        for writer in 0..self.writers.len() {
            if !self.writers[writer].works.is_empty() {
                self.carry_out(setup, writer, 0)?;
                is_busy = true;
            } else if self.writers[writer].rest.is_some() {
                self.rest_goes_on(setup, writer)?;
                is_busy = true;
            }
        }
        if matches!(self.sweeper, Sweeper::Raised { .. } | Sweeper::Deleting { .. }) {
            self.sweep(setup)?;
            is_busy = true;
        }
        if let Some(check) = self.replica.checks.first() {
            if check.seen.is_none() {
                self.check_is_seen(0);
            } else {
                self.check_ends(0)?;
            }
            is_busy = true;
        } else if !self.replica.waiting.is_empty() {
            self.check_begins();
            is_busy = true;
        }
        Ok(is_busy)
    }

    fn check_finished(&self) -> Result<(), Broken> {
        let attempts = self.clients.iter().flat_map(|it| &it.attempts);
        let open = attempts.filter(|it| it.heard == Heard::Nothing).count();
        ensure(open == 0, Promise::Finishes, || format!("{open} have no answer"))?;
        let is_swept = self.sweeper == Sweeper::Idle;
        ensure(is_swept, Promise::Finishes, || format!("{:?} goes no further", self.sweeper))?;
        let is_idle = self.writers.iter().all(|it| it.publisher.is_idle());
        ensure(is_idle, Promise::Finishes, || "a publisher waits for nothing".into())
    }
}
