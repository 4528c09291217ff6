//! Charts as SVG, drawn here: the page has them without a script, and the
//! script only reads values off them.
//!
//! Positions are whole numbers in a box of as many seconds ([`span`]) by
//! [`HEIGHT`]; the style sheet stretches it. Words are outside of the box, where nothing
//! stretches them.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::page::samples::SAMPLES_MAX;
use crate::page::words::{count, took};

/// Height of the box.
const HEIGHT: u64 = 1_000;
/// Lines across, the uppermost included.
const LINES: u64 = 2;
/// Seconds that a chart may show. A young process gets a short one, so that
/// there is something to see.
const SPANS: [usize; 3] = [60, 120, SAMPLES_MAX];

/// What is counted along the side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Things a second.
    PerSecond,
    /// Microseconds.
    Micros,
}

/// One line of a chart, oldest first. `None`: there was nothing to measure.
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) values: Vec<Option<u64>>,
}

/// One chart.
pub(super) struct Chart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What is shown, in a sentence, for who asks.
    pub(super) about: &'static str,
    pub(super) unit: Unit,
    pub(super) series: Vec<Series>,
    /// What stands there before anything was measured.
    pub(super) empty: &'static str,
}

impl Unit {
    pub(super) fn text(self, value: u64) -> String {
        match self {
            Self::PerSecond => format!("{}/s", count(value)),
            Self::Micros => took(value),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::PerSecond => "perSecond",
            Self::Micros => "micros",
        }
    }

    /// The top of a scale that goes up to `max` at least: 2, 4 or 10 and noughts,
    /// whose halves are whole.
    fn top(self, max: u64) -> u64 {
        let least = match self {
            Self::PerSecond => 2,
            Self::Micros => 1_000,
        };
        let max = max.max(least);
        let mut step = 1_u64;
        loop {
            for top in [2, 4, 10].map(|it| step.saturating_mul(it)) {
                if max <= top {
                    return top;
                }
            }
            step = step.saturating_mul(10);
        }
    }
}

impl Series {
    fn max(&self) -> u64 {
        self.values.iter().flatten().copied().max().unwrap_or_default()
    }

    /// The last value that there was within a few seconds.
    fn now(&self) -> Option<u64> {
        self.values.iter().rev().take(5).flatten().next().copied()
    }

    /// Where it goes: runs of points, one for each stretch without a gap.
    fn runs(&self, top: u64) -> Vec<Vec<(usize, u64)>> {
        let from = span(self.values.len()).saturating_sub(self.values.len());
        let mut runs = vec![Vec::new()];
        for (at, value) in self.values.iter().enumerate().map(|(at, it)| (from + at, it)) {
            match value {
                Some(value) => {
                    let up = u128::from(*value) * u128::from(HEIGHT) / u128::from(top);
                    let y = HEIGHT.saturating_sub(u64::try_from(up).unwrap_or(HEIGHT));
                    runs.last_mut().into_iter().for_each(|it| it.push((at, y)));
                }
                None if runs.last().is_some_and(|it| !it.is_empty()) => runs.push(Vec::new()),
                None => {}
            }
        }
        runs.retain(|it| !it.is_empty());
        runs
    }

    /// The line. A point without neighbours is a short stroke of its own.
    fn line(&self, top: u64) -> String {
        let mut path = String::new();
        for run in self.runs(top) {
            for (n, (x, y)) in run.iter().enumerate() {
                write!(path, "{}{x} {y}", if n == 0 { 'M' } else { 'L' }).ok();
            }
            if run.len() == 1 {
                path.push_str("h1");
            }
        }
        path
    }

    /// What is below the line.
    fn area(&self, top: u64) -> String {
        let mut path = String::new();
        for run in self.runs(top).iter().filter(|it| 1 < it.len()) {
            let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { continue };
            write!(path, "M{first} {HEIGHT}").ok();
            for (x, y) in run {
                write!(path, "L{x} {y}").ok();
            }
            write!(path, "L{last} {HEIGHT}Z").ok();
        }
        path
    }

    /// For the script: numbers, and nothing where there are none.
    fn listed(&self) -> String {
        let listed: Vec<_> =
            self.values.iter().map(|it| it.map_or_else(String::new, |it| it.to_string())).collect();
        listed.join(",")
    }
}

/// Seconds that a chart of so many samples shows.
fn span(samples: usize) -> usize {
    SPANS.into_iter().find(|it| samples <= *it).unwrap_or(SAMPLES_MAX)
}

impl Chart {
    fn span(&self) -> usize {
        span(self.series.iter().map(|it| it.values.len()).max().unwrap_or_default())
    }

    pub(super) fn markup(&self) -> Markup {
        let max = self.series.iter().map(Series::max).max().unwrap_or_default();
        let top = self.unit.top(max);
        let minutes = self.span() / 60;
        let is_empty = self.series.iter().all(|it| it.values.iter().flatten().next().is_none());
        html! {
            figure.chart id=(self.id) data-live data-unit=(self.unit.word()) data-span=(self.span()) {
                figcaption {
                    h3 { (self.title) }
                    @for (n, series) in self.series.iter().enumerate() {
                        p.now {
                            span class={ "key s" (n + 1) } {}
                            @if !series.name.is_empty() { span.name { (series.name) } }
                            b { (series.now().map_or_else(|| "–".to_owned(), |it| self.unit.text(it))) }
                        }
                    }
                }
                div.plot {
                    (self.drawing(top, is_empty))
                    @if is_empty { p.nothing { (self.empty) } } @else {
                        span.top { (self.unit.text(top)) }
                        span.middle { (self.unit.text(top / LINES)) }
                    }
                }
                p.axis { span { (minutes) " min ago" } span { "now" } }
            }
        }
    }

    fn drawing(&self, top: u64, is_empty: bool) -> Markup {
        let said = self.series.iter().map(|it| {
            let now = it.now().map_or_else(|| "none".to_owned(), |it| self.unit.text(it));
            format!("{} now {now}, at most {}", it.name, self.unit.text(it.max()))
        });
        let said = format!("{} {}.", self.about, said.collect::<Vec<_>>().join("; "));
        let last = self.span() - 1;
        html! {
            svg viewBox=(format!("0 0 {last} {HEIGHT}")) preserveAspectRatio="none"
                role="img" aria-label=(said) {
                // Words stand where the others would be.
                @for n in (0..=LINES).filter(|it| !is_empty || it % LINES == 0) {
                    @let y = n * HEIGHT / LINES;
                    path.rule d=(format!("M0 {y}H{last}")) {}
                }
                @for (n, series) in self.series.iter().enumerate() {
                    @if n == 0 { path.area d=(series.area(top)) {} }
                    path class={ "line s" (n + 1) } d=(series.line(top))
                        data-name=(series.name) data-values=(series.listed()) {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[Option<u64>]) -> Series {
        Series { name: "p50", values: values.to_vec() }
    }

    #[test]
    fn the_newest_value_is_at_the_right_and_a_gap_is_a_gap() {
        let series = series(&[Some(0), Some(10), None, Some(5), None, Some(10), Some(10)]);
        assert_eq!(series.line(10), "M53 1000L54 0M56 500h1M58 0L59 0");
        assert_eq!(series.area(10), "M53 1000L53 1000L54 0L54 1000ZM58 1000L58 0L59 0L59 1000Z");
        assert_eq!(series.listed(), "0,10,,5,,10,10");
    }

    #[test]
    fn a_scale_ends_at_a_round_number_above_all_values() {
        let tops = [0, 4, 6, 11, 21, 99, 100, 5_001].map(|it| Unit::PerSecond.top(it));
        assert_eq!(tops, [2, 4, 10, 20, 40, 100, 100, 10_000]);
        assert_eq!(Unit::Micros.top(3), 1_000);
        assert_eq!(Unit::Micros.top(u64::MAX), u64::MAX);
    }

    #[test]
    fn no_value_leaves_the_box() {
        let series = series(&[Some(u64::MAX), Some(1), None]);
        assert_eq!(series.line(u64::MAX), "M57 0L58 1000");
    }

    #[test]
    fn a_young_process_has_a_short_chart() {
        assert_eq!([0, 60, 61, 120, 121, 300].map(span), [60, 60, 120, 120, 300, 300]);
        let series = series(&[Some(1); 61]);
        assert!(series.line(1).starts_with("M59 0L60 0") && series.line(1).ends_with("L119 0"));
    }

    #[test]
    fn nothing_measured_is_said_and_not_drawn() {
        let chart = Chart {
            id: "lag",
            title: "Lag",
            about: "How far behind.",
            unit: Unit::Micros,
            series: vec![series(&[None, None])],
            empty: "no notices",
        };
        let shown = chart.markup().into_string();
        assert!(shown.contains("no notices") && shown.contains("d=\"\""), "{shown}");
    }
}
