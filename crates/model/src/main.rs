//! `headwater-model`: explores the worlds and prints how many states they have.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use headwater_model::explore::{Found, Order, explore};
use headwater_model::planted::{Planted, line};
use headwater_model::setup::Setup;
use headwater_model::step::Step;
use headwater_model::worlds;

/// Explores every schedule of small worlds.
#[derive(Debug, Parser)]
struct Options {
    /// Only the worlds whose names begin like this; all small ones otherwise.
    #[arg(long)]
    world: Option<String>,
    /// Threads that explore one world.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Nearest states first, or furthest first, which takes less memory.
    #[arg(long, value_enum, default_value_t = Visit::Depth)]
    visit: Visit,
    /// Stop after about so many steps.
    #[arg(long)]
    steps_max: Option<NonZeroUsize>,
    /// Plant this fault first; `all` is each of them in turn.
    #[arg(long)]
    plant: Option<String>,
    /// Print the names and do nothing.
    #[arg(long)]
    list: bool,
}

/// See [`Order`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Visit {
    Breadth,
    Depth,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let is_asked = |it: &Setup| match &options.world {
        Some(name) => it.name.starts_with(name.as_str()),
        None => true,
    };
    let order = match options.visit {
        Visit::Breadth => Order::Breadth,
        Visit::Depth => Order::Depth,
    };
    if let Some(name) = &options.plant {
        return hunt(name, &options);
    }
    let (mut is_well, mut total) = (true, 0);
    for setup in worlds::small().into_iter().filter(is_asked) {
        if options.list {
            say(&format!("{:24} {}", setup.name, setup.about));
            continue;
        }
        let name = setup.name;
        let found = explore(setup, order, options.threads, options.steps_max);
        is_well &= found.broken.is_none();
        total += found.states;
        report(name, &found);
    }
    if !options.list {
        say(&format!("{total} states"));
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores worlds with a fault in them: those that are asked for, or the one
/// that is known to show it.
fn hunt(name: &str, options: &Options) -> ExitCode {
    // A publisher that stops itself is one of the things that are found.
    std::panic::set_hook(Box::new(|_| ()));
    let mut is_found = true;
    for planted in Planted::all().filter(|it| name == "all" || name == it.name()) {
        let is_meant = |it: &Setup| match &options.world {
            Some(name) => it.name.starts_with(name.as_str()),
            None => it.name == planted.world(),
        };
        for world in worlds::small().into_iter().filter(is_meant) {
            let found = planted.hunt(world.clone(), options.threads);
            is_found &= found.broken.is_some();
            say(&line(planted, world.name, &found));
            if let Some((_, way)) = found.broken.filter(|_| name != "all") {
                show(&way);
            }
        }
    }
    if is_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(name: &str, found: &Found) {
    let Found { states, steps, depth, broken, unreached } = found;
    say(&format!("{name:24} {states:>9} states {steps:>10} steps, {depth:>3} deep"));
    for it in unreached {
        say(&format!("  never: {it}"));
    }
    if let Some((broken, way)) = broken {
        say(&format!(
            "  BROKEN in {} steps: {}: {}",
            way.len(),
            broken.promise.name(),
            broken.what
        ));
        show(way);
    }
}

fn show(way: &[Step]) {
    for step in way {
        say(&format!("    {step:?}"));
    }
}

/// Whoever closed the pipe wants no more.
fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}
