//! From requests to dollars.

use headwater_daemon::prices::{GB, Prices};
use serde_json::{Value, json};

use super::model::Usage;

/// A month of 30.4 days, in seconds.
pub(super) const MONTH_SECONDS: f64 = 30.4 * 86_400.0;

/// Dollars a month, by what they are for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bill {
    pub(super) puts: f64,
    pub(super) gets: f64,
    pub(super) deletes: f64,
    pub(super) traffic: f64,
    pub(super) stored: f64,
}

impl Bill {
    /// What `usage` in a month costs, and `stored_bytes` kept over all of it.
    pub(super) fn of(usage: &Usage, stored_bytes: f64, prices: &Prices) -> Self {
        Self {
            puts: usage.puts / 1_000.0 * prices.put_per1000,
            gets: usage.gets / 1_000.0 * prices.get_per1000,
            deletes: usage.deletes / 1_000.0 * prices.delete_per1000,
            traffic: usage.up_bytes / GB * prices.up_gb + usage.down_bytes / GB * prices.down_gb,
            stored: stored_bytes / GB * prices.stored_gb_month,
        }
    }

    pub(super) fn total(&self) -> f64 {
        self.puts + self.gets + self.deletes + self.traffic + self.stored
    }

    pub(super) fn to_json(self) -> Value {
        json!({
            "puts": cents(self.puts),
            "gets": cents(self.gets),
            "deletes": cents(self.deletes),
            "traffic": cents(self.traffic),
            "stored": cents(self.stored),
            "total": cents(self.total()),
        })
    }
}

/// To the cent.
pub(super) fn cents(dollars: f64) -> f64 {
    (dollars * 100.0).round() / 100.0
}

/// Dollars for people: three digits that mean something.
pub(super) fn dollars(amount: f64) -> String {
    match amount {
        it if it < 0.005 => "$0.00".to_owned(),
        it if it < 10.0 => format!("${it:.2}"),
        it if it < 1_000.0 => format!("${it:.0}"),
        it => {
            let digits = format!("{it:.0}");
            let (front, back) = digits.split_at(digits.len() - 3);
            match front.len() {
                4.. => {
                    let (millions, thousands) = front.split_at(front.len() - 3);
                    format!("${millions},{thousands},{back}")
                }
                _ => format!("${front},{back}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_daemon::prices::tables;

    use super::*;

    /// The first example of the store's own page, of ten million requests.
    #[test]
    fn the_stores_own_example_comes_out() {
        let tables = tables(None).unwrap();
        let express = tables.iter().find(|it| it.name == "s3-express").unwrap();
        let usage = Usage {
            puts: 1e6,
            gets: 9e6,
            deletes: 1e6,
            up_bytes: 1e6 * 10_240.0,
            down_bytes: 9e6 * 10_240.0,
        };
        let bill = Bill::of(&usage, 10.0 * GB, express);
        let parts = [bill.puts, bill.gets, bill.deletes, bill.traffic, bill.stored, bill.total()];
        let shown = parts.map(|it| format!("{it:.2}"));
        assert_eq!(shown, ["1.13", "0.27", "0.00", "0.08", "1.10", "2.58"]);
    }

    #[test]
    fn dollars_are_readable() {
        let shown = [0.001, 0.42, 9.994, 12.6, 999.4, 1_234.5, 1_234_567.0].map(dollars);
        let expected = ["$0.00", "$0.42", "$9.99", "$13", "$999", "$1,234", "$1,234,567"];
        assert_eq!(shown, expected);
    }
}
