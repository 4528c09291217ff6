//! Moments of the calendar, as files of rights have them, and milliseconds
//! since 1970.

use toml::value::{Datetime, Offset};

const DAY_SECONDS: i64 = 86_400;
/// From March of the year 0 to 1970.
const DAYS_BEFORE_1970: i64 = 719_468;
/// Days of 400 years, after which the calendar repeats itself.
const DAYS_OF_400_YEARS: i64 = 146_097;

/// Milliseconds since 1970; `None` without date, time or zone, and before 1970.
pub fn to_ms(at: Datetime) -> Option<u64> {
    let (date, time, offset) = (at.date?, at.time?, at.offset?);
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    let days = days_since_1970(date.year.into(), date.month.into(), date.day.into());
    let seconds = i64::from(time.hour) * 3_600
        + i64::from(time.minute) * 60
        + i64::from(time.second.unwrap_or_default());
    u64::try_from((days * DAY_SECONDS + seconds - minutes * 60) * 1_000).ok()
}

/// As a file of rights has it: `2027-01-31T00:00:00Z`. Parts of a second are
/// cut.
pub fn to_text(ms: u64) -> String {
    let seconds = i64::try_from(ms / 1_000).unwrap_or(i64::MAX);
    let (days, of_day) = (seconds / DAY_SECONDS, seconds % DAY_SECONDS);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Days of the Gregorian calendar. Years begin in March here, so that the leap
/// day is the last one of a year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    before + (month * 153 + 2) / 5 + day - 1 - DAYS_BEFORE_1970
}

fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_BEFORE_1970;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (year * 365 + year / 4 - year / 100);
    let month = (day * 5 + 2) / 153;
    let day = day - (month * 153 + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_are_themselves() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799_000),
            ("2024-12-31T12:00:00Z", 1_735_646_400_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
        ] {
            assert_eq!(to_ms(text.parse().unwrap()), Some(ms), "{text}");
            assert_eq!(to_text(ms), text);
        }
        let zoned = |text: &str| to_ms(text.parse().unwrap());
        assert_eq!(zoned("1970-01-01T02:00:00+02:00"), Some(0));
        assert_eq!(zoned("1969-12-31T23:59:59Z"), None);
        for half in ["2027-01-31", "2027-01-31T00:00:00", "07:32:00"] {
            assert_eq!(zoned(half), None, "{half}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_comes_back() {
        for day in 0..146_097_u64 {
            let ms = day * 86_400_000 + 3_000;
            assert_eq!(to_ms(to_text(ms).parse().unwrap()), Some(ms));
        }
    }
}
