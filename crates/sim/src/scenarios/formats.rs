//! Builds that know different formats, on one bucket.

use headwater_core::publish::{Answer, SubmitError};
use headwater_store::Call;
use headwater_writer::WriterConfig;

use super::{add, play, quiet};
use crate::link::Script;
use crate::plan::Plan;
use crate::run::Report;
use crate::trace::Keep;

/// A writer and a replica meet heads of a format that they do not know, written
/// by others. They refuse by name and write nothing; the others go on; after an
/// upgrade they serve.
pub(super) fn two_formats(seed: u64, keep: Keep) -> Report {
    let plan = quiet(seed, vec![WriterConfig::default(); 2]);
    let replicas = vec![headwater_replica::ReplicaConfig::default(); 2];
    play(Plan { replicas, ..plan }, keep, async |stage| {
        let old = || Script { sees_newer_format: true, ..Script::default() };
        for process in [1, 3] {
            stage.world.processes[process].set_script(old());
            stage.restart(process).await;
        }
        let (mut new, mut other) = (stage.client_of(0, 0), stage.client_of(0, 1));
        stage.commit(&mut new, "before", 3).await;

        let sent = stage.world.climate.calls(Call::ReplaceHead);
        let operation = add("refused", 0);
        let event = stage.world.trace.event(format_args!("refused is sent"));
        stage.world.truth().issued(&other.head_key, &operation, event);
        let answer = other.hear(1, &operation).await;
        let is_refused = matches!(&answer, Some(Answer::Failed(SubmitError::FormatTooNew { key, .. })) if key.ends_with("head.json"));
        stage.expect(is_refused, &format!("it must refuse by name: {answer:?}"));
        let is_untouched = sent == stage.world.climate.calls(Call::ReplaceHead);
        stage.expect(is_untouched, "it must write nothing");
        let failure = other.read_failure(3).await;
        let is_refused =
            matches!(&failure, Some(headwater_replica::ReadFailure::FormatTooNew { .. }));
        stage.expect(is_refused, &format!("it must refuse to serve: {failure:?}"));

        stage.commit(&mut new, "meanwhile", 3).await;
        stage.read_all(2).await;
        // The upgrade.
        for process in [1, 3] {
            stage.restart(process).await;
        }
        stage.commit(&mut other, "upgraded", 3).await;
        stage.read_all(3).await;
    })
}
