//! The machine of the figures: figures mean nothing without it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::{Context, Result};
use crate::record::Machine;

/// Describes this machine, with a server of this version.
pub(crate) fn read(redis: String, awake: bool) -> Result<Machine> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
    Ok(Machine {
        cpu: model(&cpus).unwrap_or("unknown").to_owned(),
        cores: std::thread::available_parallelism().context("counting the cores")?.get(),
        kernel: if kernel.is_empty() { "unknown".into() } else { kernel.trim_end().to_owned() },
        redis,
        awake,
        date: date(now.as_secs() / 86_400),
    })
}

/// Returns a warning if other processes use the machine: it is measured for half a second, before our processes run.
pub(crate) async fn busy() -> Result<Option<String>> {
    const WATCHED: Duration = Duration::from_millis(500);
    let before = worked()?;
    tokio::time::sleep(WATCHED).await;
    Ok(busy_at(worked()?.saturating_sub(before), WATCHED))
}

/// Returns how long all processors together have worked since the machine was started.
fn worked() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    let all =
        stat.lines().next().and_then(worked_by).ok_or("/proc/stat does not begin with the ticks of all processors")?;
    Ok(Duration::from_millis(all * 1_000 / rustix::param::clock_ticks_per_second()))
}

/// Returns the ticks in a line of `/proc/stat` in which the machine was neither idle nor waiting for a disk, and ran
/// nothing of the lowest priority: `cpu user nice system idle iowait irq softirq steal …`.
fn worked_by(line: &str) -> Option<u64> {
    let ticks: Vec<u64> = line.split_whitespace().skip(1).map_while(|ticks| ticks.parse().ok()).collect();
    let [user, _nice, system, _idle, _waited, of_others @ ..] = &ticks[..] else { return None };
    Some(user + system + of_others.iter().take(3).sum::<u64>())
}

/// If others use half of a core, that is half of the processor time of a run of one process.
fn busy_at(worked: Duration, watched: Duration) -> Option<String> {
    let cores = worked.as_secs_f64() / watched.as_secs_f64();
    (cores >= 0.5).then(|| {
        format!(
            "this machine has other work to do ({cores:.1} cores of it): figures are not comparable with those of a \
             quiet one, nor are ratios of a single run"
        )
    })
}

fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// Returns the date of a day after 1970-01-01 in the Gregorian calendar. Days are counted from March 1 of the year 0, so
/// that a leap day is the last day of its year.
fn date(day: u64) -> String {
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{of_month:02}", era * 400 + year_of_era + next_year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (day, wanted) in [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_088, "2024-12-31"),
            (20_778, "2026-11-21"),
        ] {
            assert_eq!(date(day), wanted);
        }
    }

    #[test]
    fn a_busy_machine_gets_a_warning() {
        let second = Duration::from_secs(1);
        assert_eq!(busy_at(second * 3 / 10, second), None);
        let warning = busy_at(second * 3 / 2, second).unwrap();
        assert!(warning.contains("1.5 cores of it") && warning.contains("not comparable"), "{warning}");
    }

    #[test]
    fn work_of_the_lowest_priority_is_not_counted() {
        assert_eq!(worked_by("cpu  100 5000 20 90000 70 3 4 5 0 0"), Some(132));
        assert_eq!(worked_by("cpu  100 5000"), None);
    }

    #[test]
    fn the_processor_is_named_as_the_kernel_names_it() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Fast CPU @ 3GHz\nflags\t: x\n"), Some("Fast CPU @ 3GHz"));
        assert_eq!(model("processor\t: 0\n"), None);
        assert!(read("7.0.15".into(), false).unwrap().cores > 0);
    }
}
