//! Handing a world to the model checker.

use std::num::NonZeroUsize;

use stateright::{Checker as _, HasDiscoveries, Model, Property};

use crate::promise::{Broken, Promise};
use crate::setup::{Goal, Setup};
use crate::step::Step;
use crate::world::World;

/// What an exploration found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// States visited, each once.
    pub states: usize,
    /// Steps taken, also to states that were known.
    pub steps: usize,
    /// The longest way to a state, in steps.
    pub depth: usize,
    /// The first broken promise, and the way to it.
    pub broken: Option<(Broken, Vec<Step>)>,
    /// What a world is for and was never reached.
    pub unreached: Vec<&'static str>,
}

/// In which order states are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nearest first: a way to a broken promise is a shortest one.
    Breadth,
    /// Furthest first: takes less memory.
    Depth,
}

impl Model for Setup {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(self, steps);
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.after(self, step);
        let is_sampled =
            0 < self.finish_every && next.fingerprint().is_multiple_of(self.finish_every);
        if next.broken.is_none() && is_sampled {
            next.broken = next.check_finishes(self).err();
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        // A function for each promise: stateright takes no closures.
        macro_rules! always {
            ($($promise:ident),+) => {
                vec![$(Property::always(Promise::$promise.name(), |_, world: &World| {
                    world.broken.as_ref().is_none_or(|it| it.promise != Promise::$promise)
                })),+]
            };
        }
        let mut all = always![
            AtMostOnce,
            Kept,
            ReceiptsTrue,
            NotApplied,
            NegativesTrue,
            NothingMissing,
            StrongReads,
            WholeVersions,
            NothingFalls,
            Fenced,
            KeepsGoing,
            Finishes
        ];
        // A world without the goal has reached it.
        macro_rules! sometimes {
            ($($goal:ident),+) => {
                [$(Property::sometimes(Goal::$goal.name(), |setup: &Self, world: &World| {
                    !setup.goals.contains(&Goal::$goal) || world.has_reached(setup, Goal::$goal)
                })),+]
            };
        }
        all.extend(sometimes![AllAccepted, Doubt, NotApplied, Swept, PinExpired, Forked]);
        all
    }
}

/// Explores a world: all of it, or until a promise is broken.
pub fn explore(
    setup: Setup,
    order: Order,
    threads: usize,
    states_max: Option<NonZeroUsize>,
) -> Found {
    let mut checker = setup.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(max) = states_max {
        checker = checker.target_state_count(max.get());
    }
    match order {
        Order::Breadth => found(&checker.spawn_bfs().join()),
        Order::Depth => found(&checker.spawn_dfs().join()),
    }
}

fn found(checker: &impl stateright::Checker<Setup>) -> Found {
    let discoveries = checker.discoveries();
    let name_of = |it: &Promise| discoveries.contains_key(it.name());
    let broken = Promise::ALL.iter().find(|it| name_of(it)).and_then(|it| {
        let path = discoveries[it.name()].clone();
        let broken = path.last_state().broken.clone()?;
        Some((broken, path.into_actions()))
    });
    let goals = checker.model().goals.iter().map(|it| it.name());
    Found {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        broken,
        unreached: goals.filter(|it| !discoveries.contains_key(it)).collect(),
    }
}
