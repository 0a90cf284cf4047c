//! The report: the figures and the verdict.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use crate::plan::{Fence, Guarding, Pause, Place, Plan};
use crate::verdict::{Books, End, Mode, Verdict};
use crate::worker::Tally;

/// The exit status if the run failed.
pub(crate) const FAILED: u8 = 1;
/// The exit status if the figures are wrong.
const WRONG: u8 = 3;
pub(crate) const INTERRUPTED: u8 = 130;

/// The plan and its result.
pub(crate) struct Report {
    pub(crate) plan: Plan,
    pub(crate) tally: Tally,
    pub(crate) left: u64,
    pub(crate) took: Duration,
    pub(crate) stopped_for: Option<Duration>,
    pub(crate) end: End,
}

/// The output format.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Text,
    Json,
}

impl Report {
    pub(crate) fn show(&self, form: Form) -> ExitCode {
        let verdict = self.verdict();
        let text = match form {
            Form::Text => self.text(verdict),
            Form::Json => format!("{}\n", self.json(verdict)),
        };
        if let Err(why) = io::stdout().write_all(text.as_bytes()) {
            eprintln!("stock: cannot write the figures: {why}");
            return ExitCode::from(FAILED);
        }
        match (verdict, self.end) {
            (Verdict::Wrong(_), _) => ExitCode::from(WRONG),
            (_, End::Interrupted) => ExitCode::from(INTERRUPTED),
            (_, End::SoldOut) => ExitCode::SUCCESS,
        }
    }

    fn books(&self) -> Books {
        let Tally { sold, refused, .. } = self.tally;
        Books { start: self.plan.pieces, sold, left: self.left, refused, end: self.end }
    }

    fn verdict(&self) -> Verdict {
        self.books().verdict(match self.plan.guard {
            Guarding::Nothing => Mode::NoLock,
            Guarding::Lease { pause: Pause::Nobody, .. } => Mode::Lock,
            Guarding::Lease { pause: Pause::OneWorker, fence: Fence::Without, .. } => Mode::Stopped,
            Guarding::Lease { pause: Pause::OneWorker, fence: Fence::With, .. } => Mode::StoppedFenced,
        })
    }

    fn text(&self, verdict: Verdict) -> String {
        let Tally { sold, refused, given_up, outlived } = self.tally;
        let mut rows = vec![
            ("store", self.store()),
            ("workers", self.workers()),
            ("lock", self.lock()),
            ("window", format!("{} between read and write, plus the requests", self.window())),
            ("start", self.plan.pieces.to_string()),
            ("sold", sold.to_string()),
            ("left", self.left.to_string()),
            ("oversold", self.books().oversold().to_string()),
            ("sales/s", format!("{:.0} ({:.2} s)", self.sales_per_second(), self.took.as_secs_f64())),
        ];
        if let Some(stopped_for) = self.stopped_for {
            let how = match self.plan.place {
                Place::Redis { .. } => "by SIGSTOP",
                Place::Embedded => "asleep: a thread cannot be stopped, so it sleeps with a lease that is not renewed",
            };
            rows.push(("stopped", format!("for {stopped_for:.2?} between read and write ({how})")));
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
        let oversold = self.books().oversold();
        match verdict {
            Verdict::Sound => format!("sold + left = {sum} = start: every piece was sold once."),
            Verdict::Refused => format!(
                "sold + left = {sum} = start: every piece was sold once. The stopped worker had read {start} left and \
                 continued when all were sold; its write was refused, because the stock had seen a later token."
            ),
            Verdict::NoLock => format!(
                "sold + left = {sum}, and there were {start}: {oversold} were sold that did not exist. Two workers \
                 read the same number, and each wrote one less. With --lock leasehold this does not happen."
            ),
            Verdict::Luck => format!(
                "sold + left = {sum} = start, by luck: no worker ran between the read and the write of another one. \
                 Use a longer window (--window 1ms) or more workers."
            ),
            Verdict::NoFence => format!(
                "sold + left = {sum}, and there were {start}: {oversold} were sold that did not exist. The stopped \
                 worker had read {start} left and checked its lease, which was valid. It continued when the lease had \
                 ended and all were sold, and wrote {}. No lock can prevent this, but the stock can, with the token of \
                 the lock: use --fence.",
                start - 1
            ),
            Verdict::Open => format!("interrupted: sold + left = {sum}, and there were {start}."),
            Verdict::Wrong(what) => {
                format!(
                    "WRONG: sold + left = {sum}, and there were {start}: {what}. Please report this, unless the \
                         machine was stopped for longer than a lease."
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
            "oversold": i64::try_from(self.books().oversold()).unwrap_or(i64::MAX),
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
        let one_more = if self.plan.pause() == Pause::OneWorker { ", and the one that is stopped" } else { "" };
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

    fn window(&self) -> String {
        match self.plan.window_us {
            0 => "0".into(),
            us => format!("{:?}", Duration::from_micros(us)),
        }
    }

    fn sales_per_second(&self) -> f64 {
        self.tally.sold as f64 / self.took.as_secs_f64().max(f64::EPSILON)
    }
}
