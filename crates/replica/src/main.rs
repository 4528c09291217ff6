//! `headwater-replica`: the replica as a daemon of its own.

use std::process::ExitCode;

headwater_store::refuse_planted!();

fn main() -> ExitCode {
    headwater_daemon::daemon::main::<headwater_replica::daemon::ReplicaDaemon>()
}
