//! What the user said, and what it means.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use super::help;
use super::timing::Timing;
use crate::exit::Failure;
use crate::said;
use crate::store::{Location, host, user};

/// Run a command while holding a lock, and end it before the lock is lost
#[derive(Debug, Args)]
#[command(long_about = help::ABOUT, after_long_help = help::MORE, after_help = help::SHORT)]
pub(crate) struct RunArgs {
    /// The lock: 1 to 255 bytes of text
    #[arg(value_parser = said::name)]
    name: String,

    /// The command, and what it is given; no shell reads it
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,

    #[command(flatten)]
    store: said::Store,

    /// How long to wait for the lock and the store
    ///
    /// For the lock, and for a store that is not there.
    /// As 30s, 1m30s or forever. Without it: for the lock for ever, and for
    /// the store not at all.
    #[arg(short, long, value_name = "DUR", verbatim_doc_comment, value_parser = wait, conflicts_with = "no_wait")]
    wait: Option<Waiting>,

    /// Where somebody else has the lock, end with 124
    #[arg(short, long)]
    no_wait: bool,

    /// How long a dead holder keeps it [default: 30s]
    ///
    /// So long the lock outlives this machine. It is renewed each third for
    /// as long as the command runs. 1s to 24h. On a quorum no longer than
    /// max_lease in its URL, which is the default where it is below 30s.
    #[arg(long, value_name = "DUR", verbatim_doc_comment, value_parser = said::duration)]
    lease: Option<Duration>,

    /// How long a command has between TERM and KILL
    ///
    /// Unless said a sixth of the lease, at most 5s; at most a third of it.
    /// When the lock is being lost the KILL comes before the lease ends, and
    /// the TERM as much earlier.
    #[arg(long, value_name = "DUR", verbatim_doc_comment, value_parser = said::duration)]
    kill_after: Option<Duration>,

    /// Exit status where it is taken, instead of 124
    #[arg(short = 'E', long, value_name = "N", default_value_t = super::end::BUSY, hide_default_value = true)]
    conflict_exit_code: u8,

    /// What others see [default: USER@HOST/PID CMD]
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    holder: Option<String>,
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

fn wait(said: &str) -> Result<Waiting, &'static str> {
    match said {
        "forever" => Ok(Waiting::ForEver),
        said => said::duration(said).map(Waiting::For),
    }
}

impl RunArgs {
    /// # Errors
    /// What makes no sense, in words.
    pub(crate) fn plan(self) -> Result<Plan, Failure> {
        let location = Location::of(&self.store)?;
        // The minder is told how long it is before there is a client to ask.
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
        Ok(Plan {
            timing: Timing::new(lease, self.kill_after).map_err(Failure::usage)?,
            location,
            holder: self.holder.unwrap_or_else(|| label(&self.command)),
            name: self.name,
            command: self.command,
            patience,
            lease,
            busy_code: self.conflict_exit_code,
            is_quiet: self.store.quiet,
        })
    }
}

/// Who this is. Never the command's arguments: they may hold what is nobody's business.
fn label(command: &[OsString]) -> String {
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
    fn waits_are_read_as_they_are_said() {
        assert_eq!(wait("1m30s").unwrap(), Waiting::For(Duration::from_secs(90)));
        assert_eq!(wait("500ms").unwrap(), Waiting::For(Duration::from_millis(500)));
        assert_eq!(wait("forever").unwrap(), Waiting::ForEver);
        assert!(wait("30").unwrap_err().contains("expected a duration such as 500ms"));
    }

    #[test]
    fn a_label_has_the_program_and_nothing_that_it_is_given() {
        let label = label(&["/usr/bin/mysqldump".into(), "--password=hunter2".into()]);
        assert!(label.ends_with(&format!("/{} mysqldump", std::process::id())), "{label}");
        let long = super::label(&["x\n".repeat(500).into()]);
        assert!(long.len() <= 256 && !long.contains('\n'), "{long}");
    }
}
