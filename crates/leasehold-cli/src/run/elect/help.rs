//! The help texts of `leasehold elect`.

pub(crate) const ABOUT: &str = "\
Run a command while this candidate leads, and end it before the leadership
is lost.

All candidates of an election use the same NAME. One of them leads and runs
CMD; the others wait in a queue. If the leader ends, dies or is cut off from
the store, the next one leads. The leadership is a lease, and CMD is ended
before the lease ends, as with `leasehold run`: see `leasehold run --help` for
TERM and KILL, for the signals that CMD gets, and for its environment.

When CMD ends, the candidate waits for a second and campaigns again, behind
the candidates that wait. With --once it ends instead.

Everybody sees the value of the leader: with --observe, with
`leasehold inspect NAME`, and with Election in the library.";

pub(crate) const SHORT: &str = "\
Example: leasehold elect scheduler --value \"$(hostname)\" -- ./scheduler
('leasehold elect --help' shows more)";

pub(crate) const MORE: &str = "\
Exit status:
  that of CMD  CMD ended, with --once or after a signal to this process
  123  with --once: the leadership was lost
  125  the store refuses the request, or NAME is used as another kind of lock
  126, 127  CMD cannot be executed, or was not found
  2    invalid arguments, or an invalid LEASEHOLD_STORE

  INT, TERM and QUIT end CMD and then the candidate; HUP does so only if it
  ends CMD. An unreachable store is no error: the candidate waits for it.

Examples:
  leasehold elect scheduler --store redis://locks.internal \\
        --value \"$(hostname):7000\" -- ./scheduler
        on each machine: one of the schedulers runs
  leasehold elect scheduler --once -- ./scheduler
        under a supervisor such as systemd, which starts it again
  leasehold elect scheduler --observe --json
        prints one line of JSON for each leader";
