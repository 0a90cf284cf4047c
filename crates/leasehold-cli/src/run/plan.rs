//! The arguments of `leasehold run`, and the plan that is made from them.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use leasehold_spec::limits::PERMITS_MAX;

use super::help;
use super::names::{Names, Share};
use super::timing::Timing;
use crate::args;
use crate::exit::Failure;
use crate::store::{Location, host, user};

/// Run a command while holding a lock, and end it before the lock is lost
#[derive(Debug, Args)]
#[command(long_about = help::ABOUT, after_long_help = help::MORE, after_help = help::SHORT)]
pub(crate) struct RunArgs {
    /// The lock, or several that are held together
    ///
    /// A name has 1 to 255 bytes of text. With several names (at most 16),
    /// CMD runs while all of these locks are held. If one is lost, CMD is
    /// ended. The locks are taken in an order that all programs share, so
    /// that two runs never wait for each other. Options concern each lock.
    #[arg(value_name = "NAME", value_parser = args::name, required = true, verbatim_doc_comment)]
    names: Vec<String>,

    /// The command and its arguments; they are not read by a shell
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten)]
    store: args::Store,

    /// How long to wait for the lock and the store
    ///
    /// A duration such as 30s or 1m30s, or forever. It limits the wait for
    /// the lock and for a store that is unreachable. Without this option,
    /// the wait for the lock has no limit, and an unreachable store is an
    /// error.
    #[arg(short, long, value_name = "DUR", verbatim_doc_comment, value_parser = wait, conflicts_with = "no_wait")]
    wait: Option<Waiting>,

    /// If another client holds the lock, end with 124
    #[arg(short, long)]
    no_wait: bool,

    /// Hold it beside other runs with this option
    ///
    /// NAME is a read-write lock then: any number of runs with --shared hold
    /// it together. A run with --exclusive is alone.
    #[arg(short, long, verbatim_doc_comment, conflicts_with_all = ["exclusive", "permits", "limit", "min_hold"])]
    shared: bool,

    /// Hold it alone, also without runs with --shared
    ///
    /// NAME is a read-write lock then, and this run writes. Runs with
    /// --shared that come later wait behind it.
    #[arg(short = 'x', long, verbatim_doc_comment, conflicts_with_all = ["permits", "limit", "min_hold"])]
    exclusive: bool,

    /// Let as many hold it as N permits allow
    ///
    /// NAME is a semaphore with N permits then, from 1 to 999999. All
    /// programs must name the same number.
    #[arg(long, value_name = "N", verbatim_doc_comment, value_parser = permits, conflicts_with = "min_hold")]
    limit: Option<u32>,

    /// How many permits to take [default: 1]
    #[arg(long, value_name = "K", value_parser = permits, requires = "limit")]
    permits: Option<u32>,

    /// Time a dead holder keeps the lock [default: 30s]
    ///
    /// From 1s to 24h. While the command runs, the lease is renewed after
    /// each third of it. On a quorum, it is at most max_lease of the URL; if
    /// that is below 30s, it is the default.
    #[arg(long, value_name = "DUR", verbatim_doc_comment, value_parser = args::duration)]
    lease: Option<Duration>,

    /// Keep the lock at least this long
    ///
    /// Counted from the moment at which the lock is acquired. If CMD ends
    /// earlier, `leasehold run` ends with it, and the store keeps others
    /// out until the time is over. For jobs that several machines start at
    /// about the same time. At most 24h; on a quorum at most its max_lease.
    #[arg(long, value_name = "DUR", verbatim_doc_comment, value_parser = args::duration)]
    min_hold: Option<Duration>,

    /// Time between TERM and KILL for the command
    ///
    /// At most a third of the lease. The default is a sixth of the lease,
    /// but at most 5s. If the lease cannot be renewed, KILL comes before
    /// the lease ends, and TERM comes this much earlier.
    #[arg(long, value_name = "DUR", verbatim_doc_comment, value_parser = args::duration)]
    kill_after: Option<Duration>,

    /// Exit status if the lock is held, instead of 124
    #[arg(short = 'E', long, value_name = "N", default_value_t = super::end::BUSY, hide_default_value = true)]
    conflict_exit_code: u8,

    /// Label for others [default: USER@HOST/PID CMD]
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    holder: Option<String>,
}

/// The arguments, checked and with defaults.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) names: Names,
    pub(crate) command: Vec<OsString>,
    pub(crate) location: Location,
    pub(crate) patience: Patience,
    pub(crate) lease: Duration,
    pub(crate) min_hold: Duration,
    pub(crate) timing: Timing,
    pub(crate) busy_code: u8,
    pub(crate) holder: String,
    pub(crate) is_quiet: bool,
}

/// How long to wait for the lock and for the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    No,
    /// Waits for the lock without a limit; a store that is unreachable at the start is an error.
    Lock,
    /// Waits for both.
    Both(Waiting),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    For(Duration),
    ForEver,
}

fn wait(text: &str) -> Result<Waiting, &'static str> {
    match text {
        "forever" => Ok(Waiting::ForEver),
        text => args::duration(text).map(Waiting::For),
    }
}

fn permits(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=PERMITS_MAX).contains(number));
    number.ok_or_else(|| format!("expected a number of permits, from 1 to {PERMITS_MAX}"))
}

impl RunArgs {
    /// Checks the arguments.
    ///
    /// # Errors
    /// If they are invalid.
    pub(crate) fn plan(self) -> Result<Plan, Failure> {
        let location = Location::of(&self.store)?;
        // The minder needs the lease before there is a client to ask.
        let lease = match self.lease {
            Some(lease) => lease,
            None => leasehold::seam::default_lease(&location.url)?,
        };
        let patience = match self.wait {
            _ if self.no_wait => Patience::No,
            None => Patience::Lock,
            Some(Waiting::For(Duration::ZERO)) => Patience::No,
            Some(waiting) => Patience::Both(waiting),
        };
        let share = match self.limit {
            _ if self.shared => Share::Read,
            _ if self.exclusive => Share::Write,
            None => Share::Whole,
            Some(limit) => {
                let permits = self.permits.unwrap_or(1);
                if permits > limit {
                    return Err(Failure::usage(format!("--permits {permits} is more than --limit {limit}")));
                }
                Share::Permits { permits, limit }
            }
        };
        let names = Names::new(self.names, share).map_err(Failure::usage)?;
        Ok(Plan {
            timing: Timing::new(lease, self.kill_after).map_err(Failure::usage)?,
            location,
            holder: self.holder.unwrap_or_else(|| label(&self.command)),
            names,
            command: self.command,
            patience,
            lease,
            min_hold: self.min_hold.unwrap_or_default(),
            busy_code: self.conflict_exit_code,
            is_quiet: self.store.quiet,
        })
    }
}

/// Returns the label of this run. It never has the arguments of the command: they may be secret.
pub(super) fn label(command: &[OsString]) -> String {
    let program = command.first().map(|path| Path::new(path).file_name().unwrap_or(path).to_string_lossy());
    let label = format!("{}@{}/{} {}", user(), host(), std::process::id(), program.unwrap_or_default());
    let mut label: String = label.chars().filter(|c| !c.is_control()).collect();
    while label.len() > leasehold_spec::limits::LABEL_MAX {
        label.pop();
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_parsed() {
        assert_eq!(wait("1m30s").unwrap(), Waiting::For(Duration::from_secs(90)));
        assert_eq!(wait("500ms").unwrap(), Waiting::For(Duration::from_millis(500)));
        assert_eq!(wait("forever").unwrap(), Waiting::ForEver);
        assert!(wait("30").unwrap_err().contains("expected a duration such as 500ms"));
    }

    #[test]
    fn a_label_has_the_program_and_not_its_arguments() {
        let label = label(&["/usr/bin/mysqldump".into(), "--password=hunter2".into()]);
        assert!(label.ends_with(&format!("/{} mysqldump", std::process::id())), "{label}");
        let long = super::label(&["x\n".repeat(500).into()]);
        assert!(long.len() <= 256 && !long.contains('\n'), "{long}");
    }
}
