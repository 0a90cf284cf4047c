//! What the user said, and what it means.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use rustix::process::geteuid;

use super::help;
use super::location::{Location, locate};
use super::timing::Timing;

/// Runs a command while holding a lock, and ends it before the lock is lost
#[derive(Debug, Args)]
#[command(long_about = help::ABOUT, after_long_help = help::MORE, after_help = help::SHORT)]
pub(crate) struct RunArgs {
    /// The lock: 1 to 255 bytes of text
    name: String,

    /// The command, and what it is given; no shell reads it
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,

    /// Where the lock is [default: $LEASEHOLD_STORE, else this host's own]
    ///
    /// redis://HOST[:PORT][/DB][?prefix=P], for all machines that reach it; file:/PATH, a directory, for this
    /// host. Without either: a directory of this user on this host, the same in a shell and in cron.
    /// A URL with a password in it goes into LEASEHOLD_STORE.
    #[arg(long, value_name = "URL", verbatim_doc_comment)]
    store: Option<String>,

    /// How long to wait for the lock, and for a store that is not there: 30s, 1m30s, forever
    ///
    /// Without it: for the lock for ever, and for the store not at all.
    #[arg(short, long, value_name = "DUR", value_parser = wait, conflicts_with = "no_wait")]
    wait: Option<Waiting>,

    /// Does not wait: somebody else has it, and that is that (exit status 124)
    #[arg(short, long)]
    no_wait: bool,

    /// How long the lock outlives this machine [default: 30s]
    ///
    /// It is renewed each third for as long as the command runs. 1s to 24h.
    #[arg(long, value_name = "DUR", value_parser = humantime::parse_duration)]
    lease: Option<Duration>,

    /// How long a command has between TERM and KILL [default: a sixth of the lease, at most 5s]
    ///
    /// At most a third of the lease. When the lock is being lost the KILL comes before the lease ends, and the
    /// TERM as much earlier.
    #[arg(long, value_name = "DUR", verbatim_doc_comment, value_parser = humantime::parse_duration)]
    kill_after: Option<Duration>,

    /// Exit status when somebody else has the lock, in place of 124
    #[arg(short = 'E', long, value_name = "N", default_value_t = super::end::BUSY, hide_default_value = true)]
    conflict_exit_code: u8,

    /// What `leasehold inspect` shows of the holder [default: USER@HOST/PID CMD]
    #[arg(long, value_name = "TEXT")]
    holder: Option<String>,

    /// Says nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// What was said, understood.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) location: Location,
    pub(crate) patience: Patience,
    pub(crate) lease: Duration,
    pub(crate) timing: Timing,
    pub(crate) busy_code: u8,
    pub(crate) holder: String,
    pub(crate) is_quiet: bool,
}

/// How long to wait, for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    No,
    /// For the lock, however long; a store that is not there at the start is an error.
    Lock,
    /// For both.
    Both(Waiting),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    For(Duration),
    ForEver,
}

fn wait(said: &str) -> Result<Waiting, humantime::DurationError> {
    match said {
        "forever" => Ok(Waiting::ForEver),
        said => humantime::parse_duration(said).map(Waiting::For),
    }
}

/// Unless said: as in the library.
const LEASE: Duration = Duration::from_millis(leasehold_spec::limits::LEASE_DEFAULT_MS);

impl RunArgs {
    /// # Errors
    /// What makes no sense, in words.
    pub(crate) fn plan(self) -> Result<Plan, String> {
        let lease = self.lease.unwrap_or(LEASE);
        let patience = match self.wait {
            _ if self.no_wait => Patience::No,
            None => Patience::Lock,
            Some(Waiting::For(Duration::ZERO)) => Patience::No,
            Some(waiting) => Patience::Both(waiting),
        };
        Ok(Plan {
            timing: Timing::new(lease, self.kill_after)?,
            location: locate(self.store)?,
            holder: self.holder.unwrap_or_else(|| label(&self.command)),
            name: self.name,
            command: self.command,
            patience,
            lease,
            busy_code: self.conflict_exit_code,
            is_quiet: self.quiet,
        })
    }
}

/// Who this is. Never the command's arguments: they may hold what is nobody's business.
fn label(command: &[OsString]) -> String {
    let user = user();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let program = command.first().map(|path| Path::new(path).file_name().unwrap_or(path).to_string_lossy());
    let label = format!("{user}@{host}/{} {}", std::process::id(), program.unwrap_or_default());
    let mut label: String = label.chars().filter(|c| !c.is_control()).collect();
    while label.len() > leasehold_spec::limits::LABEL_MAX {
        label.pop();
    }
    label
}

/// Who runs this.
pub(crate) fn user() -> String {
    let uid = geteuid().as_raw();
    user_of(uid).unwrap_or_else(|| format!("uid{uid}"))
}

/// The name of a user of this machine. Not from the environment: it is the same in cron, in sudo and on a terminal.
fn user_of(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, id) = (fields.next()?, fields.next()?, fields.next()?);
        (id.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_read_as_they_are_said() {
        assert_eq!(wait("1m30s").unwrap(), Waiting::For(Duration::from_secs(90)));
        assert_eq!(wait("500ms").unwrap(), Waiting::For(Duration::from_millis(500)));
        assert_eq!(wait("forever").unwrap(), Waiting::ForEver);
        assert!(wait("30").unwrap_err().to_string().contains("unit"));
    }

    #[test]
    fn a_label_has_the_program_and_nothing_that_it_is_given() {
        let label = label(&["/usr/bin/mysqldump".into(), "--password=hunter2".into()]);
        assert!(label.ends_with(&format!("/{} mysqldump", std::process::id())), "{label}");
        let long = super::label(&["x\n".repeat(500).into()]);
        assert!(long.len() <= 256 && !long.contains('\n'), "{long}");
    }
}
