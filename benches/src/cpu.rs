//! What the process takes of its processors.
//!
//! Rates depend on what else the machine does meanwhile. Processor time for each
//! call hardly does, so it is what two runs at different times can be compared
//! by.

use std::fs;
use std::time::Duration;

/// What one tick of `/proc/self/stat` is: `USER_HZ` is 100 on every architecture
/// that we build for (proc(5), sysconf(3)).
const TICK: Duration = Duration::from_millis(10);

/// User and system time of all threads so far; zero where there is no `/proc`.
pub fn taken() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    TICK.saturating_mul(ticks(&stat).unwrap_or_default())
}

fn ticks(stat: &str) -> Option<u32> {
    // The program's name is in parentheses and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 75 5 6 20 0";
        assert_eq!(ticks(stat), Some(325));
        assert_eq!(ticks("no such file"), None);
    }
}
