//! The summary and the verdict.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;

use crate::load::Tally;
use crate::plan::Plan;

/// The exit status of a run that oversold.
const OVERSOLD: u8 = 1;

/// The settings of a run, and its figures.
pub(crate) struct Report {
    pub(crate) plan: Plan,
    pub(crate) processes: u16,
    pub(crate) clients: u16,
    pub(crate) stock: u64,
    pub(crate) left: u64,
    pub(crate) tally: Tally,
    pub(crate) stopped_for: Option<Duration>,
}

impl Report {
    /// Prints the figures, and returns the exit status.
    pub(crate) fn show(mut self, as_json: bool) -> ExitCode {
        self.tally.latencies_us.sort_unstable();
        match as_json {
            true => println!("{}", self.json()),
            false => println!("{}\n{}", self.table(), self.verdict()),
        }
        match self.oversold() > 0 {
            true => ExitCode::from(OVERSOLD),
            false => ExitCode::SUCCESS,
        }
    }

    /// Returns the number of pieces that were sold and did not exist. If it is negative, pieces have vanished.
    fn oversold(&self) -> i128 {
        i128::from(self.tally.sold) + i128::from(self.left) - i128::from(self.stock)
    }

    fn requests(&self) -> u64 {
        let Tally { sold, sold_out, no_lock, refused, failed, .. } = self.tally;
        sold + sold_out + no_lock + refused + failed
    }

    fn per_second(&self) -> f64 {
        match self.tally.took.is_zero() {
            true => 0.0,
            false => self.tally.sold as f64 / self.tally.took.as_secs_f64(),
        }
    }

    /// Returns the latency below which this share of all replies, in percent, arrived. The latencies are sorted.
    fn latency_ms(&self, percent: usize) -> f64 {
        let all = &self.tally.latencies_us;
        let rank = (all.len() * percent).div_ceil(100).max(1);
        all.get(rank - 1).map_or(0.0, |us| *us as f64 / 1000.0)
    }

    fn table(&self) -> String {
        let Plan { lock, lease_s, work, servers, .. } = &self.plan;
        let Tally { sold, no_lock, refused, failed, .. } = self.tally;
        let mut rows = vec![
            ("lock", format!("{}, lease {lease_s} s, on {} server(s)", lock.name(), servers.len())),
            ("service", format!("{} processes, {} clients, {work:?} of work in a sale", self.processes, self.clients)),
        ];
        if let Some(stopped_for) = self.stopped_for {
            rows.push(("stopped", format!("one process in its sale, for {:.1} s", stopped_for.as_secs_f64())));
        }
        rows.extend([
            ("stock", self.stock.to_string()),
            ("requests", self.requests().to_string()),
            ("sold", sold.to_string()),
            ("left", self.left.to_string()),
            ("oversold", self.oversold().max(0).to_string()),
            ("sales/s", format!("{:.0}", self.per_second())),
            (
                "latency",
                format!(
                    "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
                    self.latency_ms(50),
                    self.latency_ms(99),
                    self.latency_ms(100)
                ),
            ),
        ]);
        let others = [("no lock", no_lock), ("refused", refused), ("failed", failed)];
        rows.extend(others.into_iter().filter(|(_, n)| *n > 0).map(|(name, n)| (name, n.to_string())));
        rows.iter().map(|(name, value)| format!("{name:<10}{value}\n")).collect()
    }

    fn verdict(&self) -> String {
        let (sold, left, stock, oversold) = (self.tally.sold, self.left, self.stock, self.oversold());
        let sum = format!("sold + left = {}", sold + left);
        match oversold {
            1.. => format!("OVERSOLD: {sum}, and there were {stock}. {oversold} pieces were sold that did not exist."),
            0 if left == 0 => format!("Sound in this run: {sum} = stock. Every piece was sold once."),
            0 => format!("Sound in this run: {sum} = stock. The time was over before all pieces were sold."),
            _ => format!("{sum}, and there were {stock}: the replies of some sales did not arrive."),
        }
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "lock": self.plan.lock.name(),
            "processes": self.processes,
            "clients": self.clients,
            "lease_s": self.plan.lease_s,
            "stock": self.stock,
            "requests": self.requests(),
            "sold": self.tally.sold,
            "left": self.left,
            "oversold": i64::try_from(self.oversold().max(0)).unwrap_or(i64::MAX),
            "no_lock": self.tally.no_lock,
            "refused": self.tally.refused,
            "failed": self.tally.failed,
            "sales_per_second": self.per_second().round(),
            "p50_ms": self.latency_ms(50),
            "p99_ms": self.latency_ms(99),
            "max_ms": self.latency_ms(100),
            "stopped_s": self.stopped_for.map(|time| time.as_secs_f64()),
            "verdict": self.verdict(),
        })
    }
}
