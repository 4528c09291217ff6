//! Numbers as people read them: short, with their unit.

/// `1,234,567`
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1.5 MiB`
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let (mut unit, mut shift) = (0, 10);
    while unit + 1 < UNITS.len() && 1_024 <= bytes >> shift {
        unit += 1;
        shift += 10;
    }
    // Tenths of the unit, cut off: nothing is shown that is not there.
    let tenths = (u128::from(bytes) * 10) >> shift;
    format!("{} {}", tenths_of(u64::try_from(tenths).unwrap_or(u64::MAX)), UNITS[unit])
}

/// A time that something took, in microseconds: `850 µs`, `2.1 ms`, `12 s`.
pub fn took(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", tenths_of(micros / 100)),
        1_000_000..60_000_000 => format!("{} s", tenths_of(micros / 100_000)),
        _ => age(micros / 1_000),
    }
}

/// A time in milliseconds, in two units at most: `0 s`, `42 s`, `5 min`,
/// `3 h 12 min`, `9 d 4 h`.
pub fn age(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |large: u64, unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {unit}"),
        _ => format!("{large} {unit} {small} {small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..86_400 => two(hours, "h", minutes % 60, "min"),
        _ => two(days, "d", hours % 24, "h"),
    }
}

/// How much of a whole, in percent: `97 %`. `–` of nothing.
pub fn share(part: u64, whole: u64) -> String {
    let percent = (u128::from(part) * 100).checked_div(u128::from(whole));
    percent.map_or_else(|| "–".to_owned(), |it| format!("{it} %"))
}

/// One thing, or several.
pub fn many(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { more })
}

/// Tenths, without a nought at the end and without tenths of large numbers.
fn tenths_of(tenths: u64) -> String {
    if 1_000 <= tenths || tenths.is_multiple_of(10) {
        return count(tenths / 10);
    }
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_commas() {
        let shown = [0, 7, 999, 1_000, 65_536, 1_234_567].map(count);
        assert_eq!(shown, ["0", "7", "999", "1,000", "65,536", "1,234,567"]);
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn bytes_are_in_the_unit_that_fits() {
        let shown = [0, 1_023, 1_024, 1_536, 64 << 20, (1 << 30) - 1].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1 KiB", "1.5 KiB", "64 MiB", "1,023 MiB"]);
        assert_eq!(bytes(u64::MAX), "15.9 EiB");
    }

    #[test]
    fn times_have_two_figures_or_two_units() {
        let shown = [0, 850, 2_100, 12_000, 345_600, 1_200_000, 90_000_000].map(took);
        assert_eq!(shown, ["0 µs", "850 µs", "2.1 ms", "12 ms", "345 ms", "1.2 s", "1 min"]);
        let shown = [999, 42_000, 300_000, 11_520_000, 86_400_000, 792_000_000].map(age);
        assert_eq!(shown, ["0 s", "42 s", "5 min", "3 h 12 min", "1 d", "9 d 4 h"]);
    }

    #[test]
    fn a_share_of_nothing_is_none() {
        assert_eq!([share(97, 100), share(0, 0), share(1, 3)], ["97 %", "–", "33 %"]);
        assert_eq!([many(1, "pin", "pins"), many(2, "pin", "pins")], ["1 pin", "2 pins"]);
    }
}
