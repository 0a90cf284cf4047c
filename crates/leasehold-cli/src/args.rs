//! The command line. The help pages, the shell completions and the manual pages are generated from it.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use leasehold_spec::{BadName, Name, limits};

use crate::exit::{Exit, Failure};
use crate::run::{ElectArgs, InterruptArgs, MinderArgs, RunArgs};
use crate::{show, tips};

/// Distributed locks that are fast, fair, fenced and honest about loss
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true, after_help = MAIN)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Arguments {
    /// Reads the arguments of this process.
    ///
    /// # Errors
    /// If the arguments are invalid, or ask for a page. The message or the page is already printed then, and the error is
    /// the exit status.
    pub(crate) fn read() -> Result<Self, Result<Exit, Failure>> {
        Self::parse(&env::args_os().collect::<Vec<_>>()).map_err(|error| {
            if !error.use_stderr() {
                return show::written(error.print().and_then(|()| io::stdout().flush()));
            }
            let _nobody_reads_it = error.print();
            Ok(Exit::Usage)
        })
    }

    /// Parses arguments. An error of the user has tips.
    pub(crate) fn parse(arguments: &[OsString]) -> Result<Self, clap::Error> {
        Self::try_parse_from(arguments).map_err(|mut error| {
            if error.use_stderr() {
                tips::add(&mut error, arguments);
            }
            error
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Box<RunArgs>),
    Elect(Box<ElectArgs>),
    /// Watch over the command of a `leasehold run` (internal)
    #[command(hide = true)]
    Minder(MinderArgs),
    /// Send a signal to this process group (internal)
    #[command(hide = true)]
    Interrupt(InterruptArgs),
    /// Lead a process group for a minder (internal)
    #[command(hide = true)]
    Place,
    /// Show the holders of a lock, their tokens, the rest of their leases, and the waiters
    #[command(after_help = INSPECT)]
    Inspect(Inspect),
    /// List the locks that are held or have waiters
    #[command(after_help = LS)]
    Ls(Ls),
    /// Take a lock away from its holder, after a grace period
    #[command(after_help = REVOKE)]
    Revoke(Revoke),
    /// Initialize a new quorum so that its nodes vote immediately
    #[command(after_help = QUORUM)]
    Quorum(Quorum),
    /// Break the locks of the tutorials, and try the same on Leasehold
    #[cfg(feature = "lab")]
    Lab(crate::lab::LabArgs),
    /// Obey the orders of a trial of the lab (internal)
    #[cfg(feature = "lab")]
    #[command(hide = true)]
    Worker(crate::lab::WorkerArgs),
    /// Print the completion script of a shell
    #[command(after_help = COMPLETIONS)]
    Completions(Completions),
    /// Print a manual page
    #[command(after_help = MAN)]
    Man(Man),
}

/// Options of all verbs that use a store.
#[derive(Args, Debug)]
pub(crate) struct Store {
    /// The store [default: $LEASEHOLD_STORE, or local]
    ///
    /// redis://[USER@]HOST[:PORT][/DB][?prefix=P]: for all machines that
    /// reach this server; rediss:// uses TLS.
    /// quorum:?node=redis://A&node=redis://B&...: 3 to 9 independent servers.
    /// file:/PATH: a directory, for all programs of this host.
    /// Default: a directory of this user on this host, the same in a shell
    /// and in cron. To use a password, add ?password_file=/PATH or
    /// ?password_env=NAME, or put the URL into LEASEHOLD_STORE.
    #[arg(long = "store", value_name = "URL", verbatim_doc_comment)]
    pub(crate) url: Option<String>,
    /// Print only errors on standard error, no notices
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// The output format.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Print one line of JSON for each lock
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The name of the lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// List only names that start with this text
    #[arg(value_name = "BEGINNING")]
    pub(crate) beginning: Option<String>,
    /// Also list locks that are free and were used within the last minute
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// The name of the lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Revoke only the grant with this token, as 'inspect' shows it
    #[arg(long, value_name = "N", value_parser = token)]
    pub(crate) token: Option<u64>,
    /// How long the holder may take to stop, at most 5s
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = grace)]
    pub(crate) grace: Duration,
    /// Revoke without grace: the next client can hold the lock at once
    #[arg(long, conflicts_with = "grace")]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Args, Debug)]
pub(crate) struct Quorum {
    /// The action
    #[arg(value_name = "begin")]
    pub(crate) what: OfQuorum,
    /// Do not check the nodes for holders and waiters first
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OfQuorum {
    /// End the quarantine of all nodes
    Begin,
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The verb; without one, the page of leasehold itself
    pub(crate) verb: Option<String>,
}

/// Checks the name of a lock, before a store is asked.
pub(crate) fn name(text: &str) -> Result<String, BadName> {
    Name::new(text).map(|name| name.to_string())
}

fn token(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "expected a token: the number of a grant, which 'leasehold inspect' shows")
}

fn grace(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_millis(limits::REVOKE_GRACE_MS);
    match duration(text)? {
        grace if grace > LONGEST => {
            Err(format!("the grace is too long: use at most {}", humantime::format_duration(LONGEST)))
        }
        grace => Ok(grace),
    }
}

/// Reads a duration. All options share this grammar, and so does `max_lease` in a URL.
pub(crate) fn duration(text: &str) -> Result<Duration, &'static str> {
    humantime::parse_duration(text).map_err(|_| "expected a duration such as 500ms, 30s, 1m30s or 2h")
}

const MAIN: &str = "\
Examples:
  leasehold run nightly --no-wait -- ./backup.sh
  leasehold inspect nightly --store redis://localhost

Exit status (of run: see 'leasehold run --help'):
  0    success
  1    nothing to do
  2    invalid arguments, or an invalid LEASEHOLD_STORE
  125  the store is unreachable or refuses the request, or a system call failed";

const INSPECT: &str = "\
Examples:
  leasehold inspect stock:42 --store redis://localhost
  leasehold inspect stock:42 --store 'rediss://me@redis.example?ca=/etc/ssl/our.pem&password_file=/run/secrets/redis'
  LEASEHOLD_STORE=redis://:PASSWORD@HOST leasehold inspect stock:42 --json

Of holders and of waiters, it shows the first 16, and how many there are.

Exit status: 0, also if the lock is free; 2 for invalid arguments; 125 if the state of the lock is unknown.";

const LS: &str = "\
This command scans the whole store, and inspects each lock. On Redis, the user needs the permission +scan.

Examples:
  leasehold ls --store redis://localhost
  leasehold ls stock: --json | jq -r 'select(.waiters > 10) | .name'

Exit status: 0, also if there are no locks; 2 for invalid arguments; 125 if the state of a lock is unknown.";

const REVOKE: &str = "\
The holder is notified at once. The next client holds the lock when the holder has released it, or when the grace is
over. If the old holder goes on working, only a resource that checks tokens rejects its writes. If a lock has several
holders, --token names one of them.

Examples:
  leasehold revoke stock:42 --store redis://localhost
  leasehold revoke stock:42 --token 1795193818546882 --grace 2s

Exit status: 0 if the lock was revoked; 1 if nobody held it (or, with --token, if somebody else did); 2 for invalid
arguments, or if several hold it and --token is missing; 125 for failures.";

const QUORUM: &str = "\
A node that is new, was restarted or was emptied may have forgotten its votes. Such a node is in quarantine: it does not
vote until all leases that it may have forgotten are over. This takes max_lease of the URL (60s by default), and at
least 22s. A new quorum that nobody has used has nothing to forget. 'begin' ends its quarantine.

If somebody holds a lock, another client could be granted the same lock with the same token, and no resource could tell
the two apart. So 'begin' checks all nodes first, for at most 60s. While a node knows a holder or a waiter, 'begin' does
nothing and names them. The user of each node needs the permission +scan for the check. It cannot see a lock that all
nodes have forgotten. If the servers of a quorum were restarted or emptied, stop all programs that use it first, or wait
until the quarantine is over.

--force skips the check. Use it only if you know that nobody holds a lock: for example if programs are already waiting
for a new quorum, or if a record is damaged.

Examples:
  leasehold quorum begin --store 'quorum:?node=redis://a&node=redis://b&node=redis://c'

Exit status: 0 if the quorum was initialized; 2 for invalid arguments; 125 for failures, or if somebody holds a lock or
waits.";

const COMPLETIONS: &str = "\
Examples:
  leasehold completions bash >~/.local/share/bash-completion/completions/leasehold
  leasehold completions fish >~/.config/fish/completions/leasehold.fish";

const MAN: &str = "\
Examples:
  leasehold man | man -l -
  leasehold man inspect >leasehold-inspect.1";
