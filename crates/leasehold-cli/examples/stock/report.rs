//! The figures, and what is to be thought of them.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use crate::plan::{Fence, Guarding, Pause, Place, Plan};
use crate::worker::Tally;

/// It could not be carried out.
pub(crate) const FAILED: u8 = 1;
/// The figures are wrong.
const WRONG: u8 = 3;
pub(crate) const INTERRUPTED: u8 = 130;

/// What was planned and what came of it.
pub(crate) struct Report {
    pub(crate) plan: Plan,
    pub(crate) tally: Tally,
    pub(crate) left: u64,
    pub(crate) took: Duration,
    pub(crate) stopped_for: Option<Duration>,
    pub(crate) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    SoldOut,
    Interrupted,
}

/// How to say it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Every piece was sold once.
    Sound,
    /// Every piece was sold once, and the worker that was stopped was refused.
    Refused,
    /// Oversold without a lock.
    NoLock,
    /// Not oversold without a lock: luck.
    Luck,
    /// Oversold by the worker that was stopped.
    NoFence,
    /// Stopped halfway in a demonstration: there is nothing to be judged.
    Open,
    /// What must not be.
    Wrong(&'static str),
}

impl Report {
    pub(crate) fn show(&self, form: Form) -> ExitCode {
        let verdict = self.verdict();
        match form {
            Form::Text => print!("{}", self.text(verdict)),
            Form::Json => println!("{}", self.json(verdict)),
        }
        match (verdict, self.end) {
            (Verdict::Wrong(_), _) => ExitCode::from(WRONG),
            (_, End::Interrupted) => ExitCode::from(INTERRUPTED),
            (_, End::SoldOut) => ExitCode::SUCCESS,
        }
    }

    /// How many were sold that were not there. Below zero, pieces have vanished.
    fn oversold(&self) -> i128 {
        i128::from(self.tally.sold) + i128::from(self.left) - i128::from(self.plan.pieces)
    }

    fn verdict(&self) -> Verdict {
        let balanced = self.oversold() == 0;
        match (self.plan.guard, self.end) {
            _ if self.end == End::SoldOut && self.left > 0 => Verdict::Wrong("nobody sells, and pieces are left"),
            _ if self.oversold() < 0 => Verdict::Wrong("pieces have vanished that nobody bought"),
            (Guarding::Lease { pause: Pause::Nobody, .. }, _) if !balanced => Verdict::Wrong("oversold under a lock"),
            (Guarding::Lease { pause: Pause::Nobody, .. }, _) => Verdict::Sound,
            (_, End::Interrupted) => Verdict::Open,
            (Guarding::Nothing, _) if balanced => Verdict::Luck,
            (Guarding::Nothing, _) => Verdict::NoLock,
            (Guarding::Lease { fence: Fence::Without, .. }, _) if balanced => {
                Verdict::Wrong("a worker was stopped beyond its lease, wrote, and nothing was oversold")
            }
            (Guarding::Lease { fence: Fence::Without, .. }, _) => Verdict::NoFence,
            (Guarding::Lease { fence: Fence::With, .. }, _) if !balanced => Verdict::Wrong("oversold behind a fence"),
            (Guarding::Lease { fence: Fence::With, .. }, _) if self.tally.refused == 0 => {
                Verdict::Wrong("a worker was stopped beyond its lease, and the fence refused nobody")
            }
            (Guarding::Lease { fence: Fence::With, .. }, _) => Verdict::Refused,
        }
    }

    fn text(&self, verdict: Verdict) -> String {
        let Tally { sold, refused, given_up, outlived } = self.tally;
        let mut rows = vec![
            ("store", self.store()),
            ("workers", self.workers()),
            ("lock", self.lock()),
            ("window", format!("{:?} between read and write, beyond the requests", self.window())),
            ("start", self.plan.pieces.to_string()),
            ("sold", sold.to_string()),
            ("left", self.left.to_string()),
            ("oversold", self.oversold().to_string()),
            ("sales/s", format!("{:.0} ({:.2} s)", self.sales_per_second(), self.took.as_secs_f64())),
        ];
        if let Some(stopped_for) = self.stopped_for {
            rows.push(("stopped", format!("one worker, between its read and its write, for {stopped_for:.2?}")));
        }
        for (name, count) in [("refused", refused), ("given up", given_up), ("outlived", outlived)] {
            if count > 0 {
                rows.push((name, count.to_string()));
            }
        }
        let table: String = rows.iter().map(|(name, value)| format!("{name:<10}{value}\n")).collect();
        format!("{table}\n{}\n", self.words(verdict))
    }

    fn words(&self, verdict: Verdict) -> String {
        let (start, sum) = (self.plan.pieces, u128::from(self.tally.sold) + u128::from(self.left));
        let oversold = self.oversold();
        match verdict {
            Verdict::Sound => format!("sold + left = {sum} = start: every piece was sold once."),
            Verdict::Refused => format!(
                "sold + left = {sum} = start: every piece was sold once. The stopped worker had read {start} left and \
                 went on when all were sold; its write was refused, because a later token had entered."
            ),
            Verdict::NoLock => format!(
                "sold + left = {sum}, and there were {start}: {oversold} were sold that were not there. Two workers read \
                 the same number, and each wrote one less. With --lock leasehold none are."
            ),
            Verdict::Luck => format!(
                "sold + left = {sum} = start, by luck: no worker came between another one's read and its write. Give \
                 them more time for it (--window 1ms), or more workers."
            ),
            Verdict::NoFence => format!(
                "sold + left = {sum}, and there were {start}: {oversold} were sold that were not there. The stopped \
                 worker had read {start} left and looked at its lease, which was good. It went on when the lease had \
                 ended and all were sold, and wrote {}. No lock prevents that; the stock can, with the lock's token: \
                 --fence.",
                start - 1
            ),
            Verdict::Open => format!("interrupted: sold + left = {sum}, and there were {start}."),
            Verdict::Wrong(what) => {
                format!(
                    "WRONG: sold + left = {sum}, and there were {start}: {what}. Please report this, unless the machine \
                         stood still for longer than a lease."
                )
            }
        }
    }

    fn json(&self, verdict: Verdict) -> serde_json::Value {
        let name = match verdict {
            Verdict::Sound => "sound",
            Verdict::Refused => "refused",
            Verdict::NoLock => "no lock",
            Verdict::Luck => "luck",
            Verdict::NoFence => "no fence",
            Verdict::Open => "interrupted",
            Verdict::Wrong(what) => what,
        };
        json!({
            "store": match self.plan.place { Place::Embedded => "embedded", Place::Redis { .. } => "redis" },
            "processes": self.plan.teams,
            "workers": self.plan.workers,
            "lock": if self.plan.guard == Guarding::Nothing { "none" } else { "leasehold" },
            "window_us": self.plan.window_us,
            "start": self.plan.pieces,
            "sold": self.tally.sold,
            "left": self.left,
            "oversold": i64::try_from(self.oversold()).unwrap_or(i64::MAX),
            "refused": self.tally.refused,
            "given_up": self.tally.given_up,
            "outlived": self.tally.outlived,
            "stopped_ms": self.stopped_for.map(|d| d.as_millis() as u64),
            "took_ms": self.took.as_millis() as u64,
            "sales_per_second": self.sales_per_second().round(),
            "verdict": name,
        })
    }

    fn store(&self) -> String {
        match &self.plan.place {
            Place::Embedded => "in this program (--store redis://… for one on a server)".into(),
            // The URL may have a password in it.
            Place::Redis { .. } => "Redis".into(),
        }
    }

    fn workers(&self) -> String {
        let kind = match self.plan.place {
            Place::Embedded => "threads",
            Place::Redis { .. } => "processes",
        };
        let one_more = match (self.plan.pause(), &self.plan.place) {
            (Pause::Nobody, _) => "",
            (Pause::OneWorker, Place::Redis { .. }) => ", and one more that is stopped (SIGSTOP)",
            (Pause::OneWorker, Place::Embedded) => {
                ", and one more that sleeps (a thread cannot be stopped: its lease is a fixed one, which nobody renews)"
            }
        };
        format!("{} {kind} of {}{one_more}", self.plan.teams, self.plan.workers)
    }

    fn lock(&self) -> String {
        match self.plan.guard {
            Guarding::Nothing => "none".into(),
            Guarding::Lease { lease_ms, fence, .. } => {
                let fence = if fence == Fence::With { "each read and write checks the token" } else { "no fence" };
                format!("Leasehold, lease {:?}, {fence}", Duration::from_millis(lease_ms))
            }
        }
    }

    fn window(&self) -> Duration {
        Duration::from_micros(self.plan.window_us)
    }

    fn sales_per_second(&self) -> f64 {
        self.tally.sold as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(guard: Guarding, sold: u64, left: u64, refused: u64, end: End) -> Verdict {
        let plan =
            Plan { name: "test".into(), place: Place::Embedded, pieces: 10, teams: 1, workers: 1, guard, window_us: 0 };
        let tally = Tally { sold, refused, ..Tally::default() };
        Report { plan, tally, left, took: Duration::from_secs(1), stopped_for: None, end }.verdict()
    }

    const fn lease(fence: Fence, pause: Pause) -> Guarding {
        Guarding::Lease { lease_ms: 1000, fence, pause }
    }

    #[test]
    fn books_that_balance_are_sound() {
        let plain = lease(Fence::Without, Pause::Nobody);
        assert_eq!(verdict(plain, 10, 0, 0, End::SoldOut), Verdict::Sound);
        assert_eq!(verdict(plain, 4, 6, 0, End::Interrupted), Verdict::Sound);
        assert_eq!(verdict(lease(Fence::With, Pause::OneWorker), 10, 0, 1, End::SoldOut), Verdict::Refused);
        assert_eq!(verdict(Guarding::Nothing, 10, 0, 0, End::SoldOut), Verdict::Luck);
    }

    #[test]
    fn overselling_is_the_lesson_or_a_bug() {
        assert_eq!(verdict(Guarding::Nothing, 15, 0, 0, End::SoldOut), Verdict::NoLock);
        assert_eq!(verdict(lease(Fence::Without, Pause::OneWorker), 20, 0, 0, End::SoldOut), Verdict::NoFence);
        for (guard, end) in [
            (lease(Fence::Without, Pause::Nobody), End::SoldOut),
            (lease(Fence::With, Pause::Nobody), End::SoldOut),
            (lease(Fence::Without, Pause::Nobody), End::Interrupted),
            (lease(Fence::With, Pause::OneWorker), End::SoldOut),
        ] {
            assert!(matches!(verdict(guard, 11, 0, 1, end), Verdict::Wrong(_)), "{guard:?} {end:?}");
        }
    }

    #[test]
    fn a_demonstration_that_shows_nothing_is_wrong() {
        let (unfenced, fenced) = (lease(Fence::Without, Pause::OneWorker), lease(Fence::With, Pause::OneWorker));
        assert!(matches!(verdict(unfenced, 10, 0, 0, End::SoldOut), Verdict::Wrong(_)));
        assert!(matches!(verdict(fenced, 10, 0, 0, End::SoldOut), Verdict::Wrong(_)));
        assert_eq!(verdict(unfenced, 3, 7, 0, End::Interrupted), Verdict::Open);
    }

    #[test]
    fn pieces_do_not_vanish_or_stay() {
        for guard in [Guarding::Nothing, lease(Fence::Without, Pause::Nobody)] {
            assert!(matches!(verdict(guard, 9, 0, 0, End::SoldOut), Verdict::Wrong(_)));
            assert!(matches!(verdict(guard, 9, 1, 0, End::SoldOut), Verdict::Wrong(_)));
        }
    }
}
