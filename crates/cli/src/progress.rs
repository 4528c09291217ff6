//! A bar on standard error, where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the time shown moves while nothing else does.
const TICK: Duration = Duration::from_millis(200);

/// A bar over `total` things, or a count where the total is not known. Hidden
/// where standard error is not a terminal, or `is_quiet`.
pub(crate) fn bar(total: Option<u64>, what: &str, is_quiet: bool) -> ProgressBar {
    let target = if is_quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(total, target);
    let template = match total {
        Some(_) => format!(
            "{{bar:40}} {{human_pos}}/{{human_len}} {what} {{per_sec}}, {{eta}} left {{msg}}"
        ),
        None => format!("{{spinner}} {{human_pos}} {what} {{per_sec}} {{msg}}"),
    };
    // A template that cannot be read costs the looks, not the work.
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    if !bar.is_hidden() {
        bar.enable_steady_tick(TICK);
    }
    bar
}
