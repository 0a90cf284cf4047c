//! The rounds of a cell: an act prepares the call, makes it, and tidies up.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::blocking::{self, Canceller};
use leasehold::{Error, ErrorKind, LostReason, Released, Revoked};

use super::bounds::{WAIT, lease};
use super::cell::Ground;
use super::homes::Caller;
use super::party::{Client, Held, Lock};
use super::playing::{Gate, SOON};
use super::{Call, Cell, Weather};

const POLL: Duration = Duration::from_millis(1);

/// Another client of the store: it holds, releases, revokes and inspects.
#[derive(Clone)]
pub(super) struct Rival(pub(super) blocking::Leasehold);

impl Rival {
    fn holds(&self, name: &str) -> Result<blocking::Guard, String> {
        let held = self.0.mutex(name).try_lock_for(SOON).map_err(|error| described("the rival's lock", &error))?;
        held.ok_or_else(|| "the lock was never free for the rival".into())
    }

    fn await_seen(&self, name: &str, seen: impl Fn(usize, bool) -> bool) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let found = self.0.mutex(name).inspect().map_err(|error| described("the rival's inspect", &error))?;
            if seen(found.waiters, found.holder().is_some()) {
                return Ok(());
            }
            if begun.elapsed() > SOON {
                return Err(format!("in vain for {SOON:?}: {found:?}"));
            }
            thread::sleep(POLL);
        }
    }

    fn await_waiter(&self, name: &str) -> Result<(), String> {
        self.await_seen(name, |waiters, _| waiters > 0)
    }

    fn await_free(&self, name: &str) -> Result<(), String> {
        self.await_seen(name, |waiters, is_held| waiters == 0 && !is_held)
            .map_err(|why| format!("not given back: {why}"))
    }

    fn revokes(&self, name: &str) -> Result<(), String> {
        let mutex = self.0.mutex(name);
        let seen = mutex.inspect().map_err(|error| described("the rival's inspect", &error))?;
        let holder = seen.holder().ok_or("nobody holds what was granted")?;
        mutex.revoke(holder, Duration::ZERO).map(drop).map_err(|error| described("the rival's revoke", &error))
    }
}

/// The result of one round: how long the call took, and whether it did what it should.
pub(super) struct Round {
    pub(super) took: Duration,
    pub(super) wrong: Option<String>,
}

/// The state that every round of a cell needs.
pub(super) struct Act<'a> {
    pub(super) cell: Cell,
    pub(super) ground: &'a Ground,
    pub(super) client: Option<Client>,
    pub(super) name: &'a str,
    pub(super) caller: Caller,
}

impl Call {
    /// Whether it needs a guard of the client under test.
    pub(super) const fn needs_guard(self) -> bool {
        matches!(
            self,
            Self::Release | Self::DropThenTry | Self::Lost | Self::Inspect | Self::Revoke | Self::Names | Self::Close
        )
    }

    /// Whether another client holds.
    const fn needs_rival(self) -> bool {
        matches!(
            self,
            Self::LockReleased | Self::TryLockHeld | Self::TryLockForHeld | Self::FullLeaseHeld | Self::LockOrCancel
        )
    }
}

impl Act<'_> {
    /// Makes the call once, with this guard or one that is taken here.
    pub(super) fn round(&mut self, held: Option<Held>, gate: &Gate<'_>) -> Result<Round, String> {
        let call = self.cell.call;
        let held = match held {
            None if call.needs_guard() => {
                let lock = self.lock();
                Some(self.caller.wait(lock.lock()).map_err(|error| described("the lock before the call", &error))?)
            }
            held => held,
        };
        let theirs = call.needs_rival().then(|| self.ground.rival.holds(self.name)).transpose()?;
        let round = self.make(call, held, theirs, gate)?;
        if self.cell.weather == Weather::Healthy && call != Call::Connect {
            self.ground.rival.await_free(self.name)?;
        }
        Ok(round)
    }

    fn lock(&self) -> Lock {
        let client = self.client.as_ref().expect("a client that is not closed");
        client.lock(self.name, lease(self.cell.call))
    }

    #[deny(clippy::wildcard_enum_match_arm, reason = "a new variant must be thought of")]
    fn make(
        &mut self,
        call: Call,
        held: Option<Held>,
        theirs: Option<blocking::Guard>,
        gate: &Gate<'_>,
    ) -> Result<Round, String> {
        let guard = || held.ok_or("there is no guard");
        Ok(match call {
            Call::Connect => self.timed(gate, self.ground.connect(self.cell.face), |_| Ok(())),
            Call::Lock => self.timed(gate, self.lock().lock(), |_| Ok(())),
            Call::TryLock => self.timed(gate, self.lock().try_lock(), taken),
            Call::TryLockFor => self.timed(gate, self.lock().try_lock_for(WAIT), taken),
            Call::TryLockHeld => self.timed(gate, self.lock().try_lock(), busy),
            Call::TryLockForHeld => self.timed(gate, self.lock().try_lock_for(WAIT), busy),
            Call::FullLeaseHeld => self.timed(gate, self.lock().full_lease().try_lock_for(WAIT), busy),
            Call::LockReleased => return self.released(gate, theirs.ok_or("there is no rival")?),
            Call::LockOrCancel => return self.cancelled(gate),
            Call::Run => self.run(gate),
            Call::Release => {
                let held = guard()?;
                self.timed(gate, held.release(), |end| match end {
                    Released::Released => Ok(()),
                    Released::NotHeld => Err("NotHeld".into()),
                })
            }
            Call::DropThenTry => {
                let (held, lock) = (guard()?, self.lock());
                let both = async move {
                    drop(held);
                    lock.try_lock().await
                };
                self.timed(gate, both, taken)
            }
            Call::Lost => return self.lost(gate, &guard()?),
            Call::Inspect => {
                let _held = guard()?;
                self.timed(gate, self.lock().inspect(), |seen| seen.holder().map(drop).ok_or("it shows nobody".into()))
            }
            Call::Revoke => {
                let _held = guard()?;
                let seen =
                    self.ground.rival.0.mutex(self.name).inspect().map_err(|error| described("inspect", &error))?;
                let holder = seen.holder().ok_or("nobody holds")?;
                self.timed(gate, self.lock().revoke(holder), |end| match end {
                    Revoked::Within(_) => Ok(()),
                    Revoked::NotHeld => Err("NotHeld".into()),
                })
            }
            Call::Names => {
                let _held = guard()?;
                let client = self.client.as_ref().ok_or("there is no client")?;
                let name = self.name;
                let is_there = |names: Vec<String>| names.iter().any(|known| known == name);
                self.timed(gate, client.names(), |names| {
                    is_there(names).then_some(()).ok_or("a name is missing".into())
                })
            }
            Call::Close => {
                let _held = guard()?;
                let client = self.client.take().ok_or("there is no client")?;
                let closing = async { Ok(client.close().await) };
                self.timed(gate, closing, |closed| match closed.unconfirmed() {
                    [] => Ok(()),
                    left => Err(format!("not given back: {left:?}")),
                })
            }
        })
    }

    /// Waits for the call on this thread, and compares its answer with the expected one.
    fn timed<T>(
        &self,
        gate: &Gate<'_>,
        call: impl Future<Output = Result<T, Error>>,
        expected: impl FnOnce(T) -> Result<(), String>,
    ) -> Round {
        let begun = gate.pass();
        let ended = self.caller.wait(call);
        let took = begun.elapsed();
        let wrong = match (ended, self.cell.weather) {
            // Closing cannot report a lease as released that the store has not confirmed.
            (Ok(_), Weather::Silent) if self.cell.call == Call::Close => None,
            (Ok(value), _) => expected(value).err(),
            (Err(error), Weather::Silent) if may_be_said(&error) => None,
            (Err(error), _) => Some(described("an error", &error)),
        };
        Round { took, wrong }
    }

    /// Runs the call. The time counts from the end of the work.
    fn run(&self, gate: &Gate<'_>) -> Round {
        let mut ended = Instant::now();
        let done = self.caller.wait(self.lock().run(|| ended = gate.pass()));
        let wrong = done.err().map(|error| described("an error", &error));
        Round { took: ended.elapsed(), wrong }
    }

    fn released(&self, gate: &Gate<'_>, theirs: blocking::Guard) -> Result<Round, String> {
        thread::scope(|scope| {
            let releasing = scope.spawn(move || {
                // In every case the rival's guard is released: the call would wait for ever.
                let waits = self.ground.rival.await_waiter(self.name);
                drop(theirs);
                waits
            });
            let lock = self.lock();
            let round = self.timed(gate, lock.lock(), |_| Ok(()));
            releasing.join().map_err(|_| "the rival panicked")??;
            Ok(round)
        })
    }

    fn cancelled(&self, gate: &Gate<'_>) -> Result<Round, String> {
        let canceller = Canceller::new();
        thread::scope(|scope| {
            let cancelling = scope.spawn(|| {
                let waits = self.ground.rival.await_waiter(self.name);
                let cancelled = Instant::now();
                canceller.cancel();
                waits.map(|()| cancelled)
            });
            let lock = self.lock();
            let round = self.timed(gate, async { lock.lock_or_cancel(&canceller) }, busy);
            let ended = Instant::now();
            let cancelled = cancelling.join().map_err(|_| "the rival panicked")??;
            Ok(Round { took: ended.duration_since(cancelled), ..round })
        })
    }

    fn lost(&self, gate: &Gate<'_>, held: &Held) -> Result<Round, String> {
        thread::scope(|scope| {
            let (revoke, is_to_revoke) = mpsc::channel::<()>();
            let revoking = scope.spawn(move || {
                // An error means that nobody waits any more.
                let _ = is_to_revoke.recv();
                self.ground.rival.revokes(self.name)
            });
            let waiting = async {
                drop(revoke);
                Ok(held.lost(SOON).await)
            };
            let round = self.timed(gate, waiting, |why| match why {
                Some(lost) if lost.reason() == LostReason::Revoked => Ok(()),
                why => Err(format!("{why:?}")),
            });
            revoking.join().map_err(|_| "the rival panicked")??;
            Ok(round)
        })
    }
}

fn taken(held: Option<Held>) -> Result<(), String> {
    held.map(drop).ok_or_else(|| "None, and the lock is free".into())
}

fn busy(held: Option<Held>) -> Result<(), String> {
    match held.map(drop) {
        None => Ok(()),
        Some(()) => Err("a guard, and another client holds".into()),
    }
}

/// Whether a call may return this error when the store answers nothing.
fn may_be_said(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Quorum)
}

fn described(what: &str, error: &Error) -> String {
    format!("{what}: {:?}, {error}", error.kind())
}
