//! The pages of `leasehold run --help`.

pub(crate) const ABOUT: &str = "\
Run a command while holding a lock, and end it before the lock is lost.

flock(1) for many machines: takes the lock NAME, waiting in line for it; runs
CMD; gives the lock back when CMD and what it left in the background have ended.
The lock is a lease, which is renewed for as long as CMD runs. Where it cannot
be renewed (the store or the network is away for too long, this machine sleeps),
where it is revoked, or where `leasehold run` itself is killed, the command's
process group gets a TERM, and then a KILL, before the store gives the lock to
anybody else. If `leasehold run` and its minder are both killed, or both stopped
(SIGSTOP), nothing ends CMD.

CMD finds LEASEHOLD_NAME and LEASEHOLD_TOKEN in its environment. The token is a
number that is larger at each grant of this lock: by it a database can refuse
the late writes of an earlier holder. CMD inherits standard input and works on a
terminal. HUP, INT, TERM, QUIT, USR1, USR2 and WINCH are handed on to it.";

pub(crate) const SHORT: &str = "\
Example: leasehold run nightly --no-wait -- ./backup.sh
('leasehold run --help' has the rest)";

// Lines and not paragraphs, also on the manual page: no longer than a terminal is wide.
pub(crate) const MORE: &str = "\
Lengths of time: 500ms, 30s, 1m30s, 2h.

Exit status: that of CMD, and 128+n if signal n ended it. Otherwise:
  2      bad arguments, or a bad LEASEHOLD_STORE
  123    the lock was lost while CMD ran, and CMD was ended, whatever its status
  124    somebody else has the lock, or had it until the wait was over (see -E)
  125    the store is not there or refuses, or something else of ours went wrong
  126    CMD cannot be executed
  127    CMD was not found
  128+n  signal n came while waiting for the lock
A status of CMD's own is handed through even where it is one of these: 124 is
also that of `timeout`. Choose another one for a lock that is taken by -E.

What to know:
  What CMD leaves running keeps the lock until it has ended, too; `setsid` sets
  a process free of that, which then can outlive the lock.
  Ctrl-Z stops the renewals with CMD. Whoever comes back within the lease finds
  everything as it was; after that CMD is ended, with status 123.
  Ctrl-C that ends CMD ends the script or the loop around `leasehold run`, too.
  A `leasehold` in CMD finds the same store in LEASEHOLD_STORE, unless the
  store's URL has a password or names a variable that has it: CMD inherits
  neither, and a `leasehold` in it then asks for --store with
  ?password_file=/PATH.
  A `leasehold run` in CMD that takes the same NAME waits for itself.
  In cron there is no LEASEHOLD_STORE, unless the crontab sets it: give --store.
  In a unit of systemd: KillMode=mixed, or CMD gets its TERM twice; and with
  --no-wait SuccessExitStatus=124.

Examples:
  export LEASEHOLD_STORE=redis://locks.internal
        where the locks are that all machines share; without it, this host's own
  leasehold run nightly --store redis://locks.internal --no-wait -- ./backup.sh
        in every machine's crontab: one of them does it, the others end with 124
  leasehold run deploy --wait 10m -- make deploy
        in line, for ten minutes at most
  leasehold run db --lease 10s -- ./migrate
        followed by the next one 10 s after this machine has died
  leasehold run two -- sh -c './first; ./second'
        several commands: a shell reads them
  leasehold run report -- sh -c 'psql -v token=$LEASEHOLD_TOKEN -f report.sql'
        with the token that fences late writes off
  LEASEHOLD_STORE=redis://:PASSWORD@HOST leasehold run report -- ./report
        with a password, which does not belong on a command line";
