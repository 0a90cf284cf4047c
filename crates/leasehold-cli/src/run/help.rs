//! The help texts of `leasehold run`.

pub(crate) const ABOUT: &str = "\
Run a command while holding a lock, and end it before the lock is lost.

This is flock(1) for many machines. It waits in the queue for the lock NAME,
runs CMD, and releases the lock when CMD and its background processes have
ended. The lock is a lease, which is renewed while CMD runs. With several
names, CMD runs while all of the locks are held.

If the lease cannot be renewed, the process group of CMD gets TERM and then
KILL, before the store grants the lock to another client. This happens if the
store or the network is down for too long, or if this machine sleeps. It also
happens if the lock is revoked, or if `leasehold run` itself is killed. If
`leasehold run` and its minder process are both killed, or both stopped
(SIGSTOP), nothing stops CMD.

The environment of CMD has LEASEHOLD_NAME and LEASEHOLD_TOKEN. The token is a
number that increases with each grant of this lock: a database can use it to
reject late writes of an earlier holder. LEASEHOLD_NAMES has one name a line,
and LEASEHOLD_TOKENS has their tokens in the same order, separated by blanks.
With several names, CMD has only these two variables. CMD inherits standard
input, and it can use the terminal. It gets the signals HUP, INT, TERM, QUIT,
USR1, USR2 and WINCH that are sent to `leasehold run`.";

pub(crate) const SHORT: &str = "\
Example: leasehold run nightly --no-wait -- ./backup.sh
('leasehold run --help' shows more)";

// Lines and not paragraphs, also on the manual page: no longer than a terminal is wide.
pub(crate) const MORE: &str = "\
Durations: 500ms, 30s, 1m30s, 2h.

Exit status: that of CMD, or 128+n if signal n ended it. Otherwise:
  2      invalid arguments, or an invalid LEASEHOLD_STORE
  123    the lock was lost while CMD ran; CMD was ended, whatever its status
  124    another client holds the lock, or held it until --wait ended (see -E)
  125    the store is unreachable or refuses the request (also if other programs
         use NAME as another kind of lock, or with another --limit), or another
         failure
  126    CMD cannot be executed
  127    CMD was not found
  128+n  signal n arrived while waiting for the lock
The status of CMD is passed on even if it is one of these: `timeout`, for
example, also uses 124. Use -E to choose another status for a lock that is held.

Notes:
  While a process that CMD has left behind runs, the lock stays held. `setsid`
  excludes a process from this; such a process can outlive the lock.
  Ctrl-Z stops CMD and the renewals. If CMD is continued within the lease,
  nothing is lost. After that, CMD is ended, and the exit status is 123.
  If Ctrl-C ends CMD, it also ends the script or loop around `leasehold run`.
  A `leasehold` inside CMD finds the same store in LEASEHOLD_STORE. The
  exception is a URL with a password, or with ?password_env=NAME: CMD inherits
  neither. There, use --store with ?password_file=/PATH.
  A `leasehold run` inside CMD for the same NAME waits for ever.
  The words before -- are names: put -- before CMD.
  If `leasehold run` waits for more than a second, a message on standard error
  says for whom. With --wait it also says at once that the store is
  unreachable. Both come again at growing intervals. -q turns them off.
  In cron, LEASEHOLD_STORE is only set if the crontab sets it: use --store.
  In a systemd unit, set KillMode=mixed, or CMD gets TERM twice; with
  --no-wait also set SuccessExitStatus=124.

Examples:
  export LEASEHOLD_STORE=redis://locks.internal
        the store that all machines share; the default is only for this host
  leasehold run nightly --store redis://locks.internal --no-wait \\
        --min-hold 5m -- ./backup.sh
        in the crontab of each machine: one runs it, the others end with 124.
        Their clocks may differ by up to 5 minutes, however short the job is
  leasehold run deploy --wait 10m -- make deploy
        waits for its turn, for ten minutes at most
  leasehold run account:7 account:9 -- ./transfer
        holds both locks, or none; the order of the names does not matter
  leasehold run prices --shared -- ./report
        reads beside other runs with --shared, and while nobody writes
  leasehold run prices --exclusive -- ./update
        writes: no run with --shared, and no other writer, runs meanwhile
  leasehold run api --limit 4 -- ./crawl
        at most four of them at a time, on all machines
  leasehold run db --lease 10s -- ./migrate
        if this machine dies, the next client holds the lock 10 s later
  leasehold run two -- sh -c './first; ./second'
        several commands need a shell
  leasehold run report -- sh -c 'psql -v token=$LEASEHOLD_TOKEN -f report.sql'
        passes on the token, with which the database rejects late writes
  LEASEHOLD_STORE=redis://:PASSWORD@HOST leasehold run report -- ./report
        with a password, which must not be on a command line";
