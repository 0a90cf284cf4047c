//! What the user said. The help pages, the shells' completions and the manual pages are all made from here.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use leasehold_spec::{BadName, Name, limits};

use crate::exit::{Exit, Failure};
use crate::run::{InterruptArgs, MinderArgs, RunArgs};
use crate::{show, tips};

/// Distributed locks that are fast, fair, fenced and honest about loss
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, arg_required_else_help = true, after_help = MAIN)]
pub(crate) struct Said {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Said {
    /// What was said to this process.
    ///
    /// # Errors
    /// How the process ends where that makes no sense, or where a page was asked for: by then it is printed.
    pub(crate) fn read() -> Result<Self, Result<Exit, Failure>> {
        Self::try_parse().map_err(|mut error| {
            if !error.use_stderr() {
                return show::written(error.print().and_then(|()| io::stdout().flush()));
            }
            tips::add(&mut error);
            let _nobody_reads_it = error.print();
            Ok(Exit::Usage)
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(Box<RunArgs>),
    /// Watch over the command of a `leasehold run`, which starts it
    #[command(hide = true)]
    Minder(MinderArgs),
    /// End by a signal together with a process group, for a `leasehold run`
    #[command(hide = true)]
    Interrupt(InterruptArgs),
    /// Lead a process group for a minder, which starts it
    #[command(hide = true)]
    Place,
    /// Say who holds a lock, with which token, for how long, and how many wait
    #[command(after_help = INSPECT)]
    Inspect(Inspect),
    /// List the locks that are held or waited for
    #[command(after_help = LS)]
    Ls(Ls),
    /// Take a lock away from its holder, with notice
    #[command(after_help = REVOKE)]
    Revoke(Revoke),
    /// Initialize a new quorum so that its nodes vote at once
    #[command(after_help = QUORUM)]
    Quorum(Quorum),
    /// Print the completions of a shell
    #[command(after_help = COMPLETIONS)]
    Completions(Completions),
    /// Print a manual page
    #[command(after_help = MAN)]
    Man(Man),
}

/// Which store, and how much is said of that.
#[derive(Args, Debug)]
pub(crate) struct Store {
    /// The store [default: $LEASEHOLD_STORE, or local]
    ///
    /// Where the locks are:
    /// redis://[USER@]HOST[:PORT][/DB][?prefix=P], or rediss:// with TLS, for
    /// all machines that reach it; quorum:?node=redis://A&node=redis://B&...,
    /// 3 to 9 of them; file:/PATH, a directory, for this host.
    /// Without any: a directory of this user on this host, the same in a
    /// shell and in cron. A password comes by ?password_file=/PATH or
    /// ?password_env=NAME, or with the URL in LEASEHOLD_STORE.
    #[arg(long = "store", value_name = "URL", verbatim_doc_comment)]
    pub(crate) url: Option<String>,
    /// Say nothing on standard error but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// In which form it is printed.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Print a line of JSON for each lock
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// The lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Args, Debug)]
pub(crate) struct Ls {
    /// Only names that begin with this
    #[arg(value_name = "BEGINNING")]
    pub(crate) beginning: Option<String>,
    /// Also those that are free, and were used within the last minute
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Args, Debug)]
pub(crate) struct Revoke {
    /// The lock
    #[arg(value_parser = name)]
    pub(crate) name: String,
    /// Only while 'inspect' shows this token: somebody else may hold it by now
    #[arg(long, value_name = "N", value_parser = token)]
    pub(crate) token: Option<u64>,
    /// How long the holder has to stop, at most 5s
    #[arg(long, value_name = "DUR", default_value = "5s", value_parser = grace)]
    pub(crate) grace: Duration,
    /// No notice: the next one holds at once, whatever the holder does
    #[arg(long, conflicts_with = "grace")]
    pub(crate) now: bool,
    #[command(flatten)]
    pub(crate) store: Store,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Args, Debug)]
pub(crate) struct Quorum {
    /// What to do with it
    #[arg(value_name = "begin")]
    pub(crate) what: OfQuorum,
    /// Begin it without asking its nodes whether anybody holds or waits
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OfQuorum {
    /// Have all nodes vote at once, whatever they may have forgotten
    Begin,
}

#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Args, Debug)]
pub(crate) struct Man {
    /// The page of this verb; without one that of leasehold itself
    pub(crate) verb: Option<String>,
}

/// What no store would take is refused before any is asked.
pub(crate) fn name(text: &str) -> Result<String, BadName> {
    Name::new(text).map(|name| name.to_string())
}

fn token(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "a token is the number of a grant, which 'leasehold inspect' shows")
}

fn grace(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_millis(limits::REVOKE_GRACE_MS);
    match duration(text)? {
        grace if grace > LONGEST => Err(format!("the longest grace is {}", humantime::format_duration(LONGEST))),
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
  0    it was done
  1    there was nothing to do
  2    bad arguments, or a bad LEASEHOLD_STORE
  125  it could not be done: the store is not there or refuses, or the system does";

const INSPECT: &str = "\
Examples:
  leasehold inspect stock:42 --store redis://localhost
  leasehold inspect stock:42 --store 'rediss://me@redis.example?ca=/etc/ssl/our.pem&password_file=/run/secrets/redis'
  LEASEHOLD_STORE=redis://:PASSWORD@HOST leasehold inspect stock:42 --json

Exit status: 0, also where the lock is free; 2 for bad arguments; 125 where it could not be told.";

const LS: &str = "\
This looks through the whole store; on Redis its user needs the right +scan for that.

Examples:
  leasehold ls --store redis://localhost
  leasehold ls stock: --json | jq -r 'select(.waiters > 10) | .name'

Exit status: 0, also where there are none; 2 for bad arguments; 125 where it could not be told.";

const REVOKE: &str = "\
The holder is told at once. The next one holds when it has given the lock back, or when the grace is over. Work that
goes on all the same is refused only by a resource that checks tokens.

Examples:
  leasehold revoke stock:42 --store redis://localhost
  leasehold revoke stock:42 --token 1795193818546882 --grace 2s

Exit status: 0 where the holder was told; 1 where nobody held it (or, with --token, somebody else did); 2 for bad
arguments; 125 where it could not be done.";

const QUORUM: &str = "\
A node that is new, that restarted or that was emptied may have forgotten for whom it voted. So it has no vote until
whatever it can have forgotten is over: for max_lease of the URL (60s unless said), and for 22s at least. A quorum that
nobody has used has nothing to forget: on the day when it is set up, 'begin' ends that.

If somebody does hold a lock, another can be granted the same, and with the same token: no resource would tell the two
apart. So 'begin' asks all nodes first, for at most 60s. It begins nothing while a node knows a holder or a waiter, and
names them. The user of each node needs the right +scan for that. What all nodes have forgotten cannot be seen: if the
servers of a quorum were restarted or emptied, stop its programs first, or wait.

--force asks nobody. It is for operators who know that nobody holds: programs wait for a new quorum already, or a record
is damaged.

Examples:
  leasehold quorum begin --store 'quorum:?node=redis://a&node=redis://b&node=redis://c'

Exit status: 0 where the nodes were told; 2 for bad arguments; 125 where it could not be done, or somebody holds or
waits.";

const COMPLETIONS: &str = "\
Examples:
  leasehold completions bash >~/.local/share/bash-completion/completions/leasehold
  leasehold completions fish >~/.config/fish/completions/leasehold.fish";

const MAN: &str = "\
Examples:
  leasehold man | man -l -
  leasehold man inspect >leasehold-inspect.1";
