//! How many repeats a process makes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// How a budget fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryBudgetConfig {
    /// Repeats for each hundred calls. With 40, a bucket sees at most 1.4 times
    /// the calls that callers make; one that fails every fifth call needs 25.
    pub percent: u64,
    /// Repeats a second on top, so that a process with few calls has any.
    pub per_second: u64,
    /// What can be saved up for a bad moment.
    pub saved_max: u64,
}

impl Default for RetryBudgetConfig {
    fn default() -> Self {
        Self { percent: 40, per_second: 5, saved_max: 100 }
    }
}

/// Repeats that callers share: each call puts a part of one in, each repeat
/// takes one out. When it is empty they take turns.
///
/// Without it, a bucket in which every call fails would see six times the calls
/// of a healthy one, for as long as it stays down.
#[derive(Debug)]
pub struct RetryBudget {
    config: RetryBudgetConfig,
    account: Mutex<Account>,
}

/// In hundredths of a repeat.
#[derive(Debug)]
struct Account {
    balance: u64,
    /// Repeats that were taken before they were there; they are paid first.
    owed: u64,
    /// Up to when the part that comes with time was paid in; `None` before the
    /// first call.
    paid_until: Option<Instant>,
    /// Who waits now has turns up to this moment.
    promised_until: Option<Instant>,
}

const ONE: u64 = 100;

/// Where repeats do not come with time, and one has to be made.
const NO_TURN: Duration = Duration::from_secs(1);

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(RetryBudgetConfig::default())
    }
}

impl RetryBudget {
    /// A budget with its savings full.
    pub fn new(config: RetryBudgetConfig) -> Self {
        let balance = config.saved_max.saturating_mul(ONE);
        let account = Account { balance, owed: 0, paid_until: None, promised_until: None };
        Self { config, account: Mutex::new(account) }
    }

    /// A call begins.
    pub(crate) fn deposit(&self) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.balance = self.capped(account.balance.saturating_add(self.config.percent));
    }

    /// Waits for a repeat; whether there is one before `latest`.
    ///
    /// Cancel safe; a turn that was waited for is lost to everybody.
    pub(crate) async fn withdraw(&self, latest: Instant) -> bool {
        loop {
            match self.try_withdraw(Instant::now()) {
                Ok(()) => return true,
                Err(Some(at)) if at <= latest => sleep_until(at).await,
                Err(_) => return false,
            }
        }
    }

    /// Takes a repeat that will be made in any case, and says when its turn is:
    /// now, where there is one. It is owed until then.
    pub(crate) fn take_turn(&self, now: Instant) -> Instant {
        match self.try_withdraw(now) {
            Ok(()) => now,
            Err(at) => {
                let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
                account.owed = (account.owed + 1).min(self.config.saved_max.max(1));
                at.unwrap_or(now + NO_TURN)
            }
        }
    }

    /// Takes a repeat, or says when it is worth asking again.
    fn try_withdraw(&self, now: Instant) -> Result<(), Option<Instant>> {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(account.paid_until.unwrap_or(now));
        let due = since.as_millis() * u128::from(self.config.per_second * ONE) / 1_000;
        if account.paid_until.is_none() || 0 < due {
            account.paid_until = Some(now);
        }
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        account.balance = self.capped(account.balance.saturating_add(due));
        let repaid = account.owed.min(account.balance / ONE);
        account.owed -= repaid;
        account.balance -= repaid * ONE;
        if let Some(rest) = account.balance.checked_sub(ONE) {
            account.balance = rest;
            return Ok(());
        }
        // Each waits for a moment of its own, or all would wake for one repeat.
        let per_second = u32::try_from(self.config.per_second).unwrap_or(u32::MAX);
        let Some(turn) = Duration::from_secs(1).checked_div(per_second) else { return Err(None) };
        let at = account.promised_until.map_or(now, |it| it.max(now)) + turn;
        account.promised_until = Some(at);
        Err(Some(at))
    }

    fn capped(&self, balance: u64) -> u64 {
        balance.min(self.config.saved_max.saturating_mul(ONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> RetryBudget {
        RetryBudget::new(RetryBudgetConfig { percent: 40, per_second: 5, saved_max: 10 })
    }

    #[tokio::test(start_paused = true)]
    async fn savings_go_first_and_then_they_take_turns() {
        let budget = budget();
        let began = Instant::now();
        let latest = began + Duration::from_secs(60);
        for _ in 0..10 {
            assert!(budget.withdraw(latest).await);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..50 {
            assert!(budget.withdraw(latest).await);
        }
        let took = began.elapsed();
        assert!((9..=11).contains(&took.as_secs()), "five a second: {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn calls_pay_in_and_savings_have_an_end() {
        let budget = budget();
        for _ in 0..1_000 {
            budget.deposit();
        }
        let now = Instant::now();
        let taken = (0..100).filter(|_| budget.try_withdraw(now).is_ok()).count();
        assert_eq!(taken, 10);
        for _ in 0..10 {
            budget.deposit();
        }
        let taken = (0..100).filter(|_| budget.try_withdraw(now).is_ok()).count();
        assert_eq!(taken, 4, "two for each five calls");
    }

    #[tokio::test(start_paused = true)]
    async fn repeats_that_are_made_in_any_case_take_turns_and_are_paid_by_everybody() {
        let budget = budget();
        let now = Instant::now();
        let turns: Vec<_> = (0..20).map(|_| budget.take_turn(now).duration_since(now)).collect();
        assert!(turns[..10].iter().all(Duration::is_zero), "savings go first: {turns:?}");
        assert_eq!(turns[10], Duration::from_millis(200), "then five a second");
        assert_eq!(turns[19], Duration::from_secs(2));

        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(budget.try_withdraw(Instant::now()).is_err(), "what came in was owed");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(budget.try_withdraw(Instant::now()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_no_time_gets_none() {
        let budget =
            RetryBudget::new(RetryBudgetConfig { percent: 0, per_second: 1, saved_max: 0 });
        let began = Instant::now();
        assert!(!budget.withdraw(began + Duration::from_millis(500)).await);
        assert_eq!(began.elapsed(), Duration::ZERO, "it is told at once");
    }
}
