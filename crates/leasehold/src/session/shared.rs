//! The part that callers and the session's thread share: the machine behind one short lock, and how it is changed.

use std::pin::pin;
use std::sync::{Arc, PoisonError};

use leasehold_spec::SessionId;
use leasehold_spec::mutant::{Mutant, is_on};
use tokio::sync::{Notify, oneshot};

use super::agenda::Thread;
use super::hold::Hold;
use super::machine::guards::{self, Panicking};
use super::machine::{HandOver, Lanes, Machine, Turn, close};
use crate::error::{Error, ErrorKind, Result};
use crate::store::Store;
use crate::sync::{Mutex, panicking};
use crate::world::World;

pub(crate) struct Shared {
    pub(crate) world: Arc<dyn World>,
    pub(crate) store: Arc<dyn Store>,
    process: u32,
    /// The process ID cached at connect: see [`World::process_as_known`].
    known_process: u32,
    machine: Mutex<Machine>,
    /// Wakes the session's thread.
    pub(crate) wake: Notify,
    /// Notified when the client is closed.
    closing: Notify,
}

impl Shared {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        world: Arc<dyn World>,
        lanes: Lanes,
        hand_over: HandOver,
    ) -> (Arc<Self>, SessionId) {
        let mut random = [0; 16];
        world.random(&mut random);
        let id = SessionId(u128::from_ne_bytes(random));
        let machine = Machine::new(Arc::clone(&world), Arc::clone(&store), id, lanes, hand_over);
        let shared = Self {
            process: world.process(),
            known_process: world.process_as_known(),
            machine: Mutex::new(machine),
            wake: Notify::new(),
            closing: Notify::new(),
            world,
            store,
        };
        (Arc::new(shared), id)
    }

    /// Changes the machine at this moment. Then, without the lock, closes the connections that were given up, wakes the
    /// thread if something is due before its next turn, and notifies callers.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Turn<'_>) -> R) -> R {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock is read under the lock: that of the machine never runs backward.
        let (result, mut effects, thread) = machine.change(&*self.world, change);
        drop(machine);
        effects.close_links();
        if thread == Thread::Wakes {
            self.wake.notify_one();
        }
        effects.flush(|hold| self.drop_hold(hold));
        result
    }

    /// Releases a lease in the background: what dropping a guard does, with a runtime or without.
    pub(crate) fn drop_hold(&self, hold: &Hold) {
        if !self.is_ours() || is_on(Mutant::P16RenewsDropped) {
            return; // The lease belongs to the parent process.
        }
        let panicking = if panicking() { Panicking::Yes } else { Panicking::No };
        self.with(|turn| guards::drop_guard(turn, hold, panicking));
    }

    /// Begins the end of the session: callers get an error, and held leases are released in the background.
    pub(crate) fn begin_close(&self) {
        if !self.is_surely_ours() {
            return; // The leases are the parent's, and one of its threads may have held the lock at the fork.
        }
        self.with(close::begin);
        self.closing.notify_waiters();
    }

    /// Ends the session when its thread has ended.
    pub(crate) fn end(&self) {
        self.with(close::end);
        self.closing.notify_waiters();
    }

    /// Polls `future` until the client is closed.
    pub(crate) async fn while_open<F: Future>(&self, future: F) -> Option<F::Output> {
        if !self.is_surely_ours() {
            return Some(future.await); // As in `within`: every call in a forked child is refused.
        }
        let mut closing = pin!(self.closing.notified());
        closing.as_mut().enable(); // From here on it gets the notification.
        if self.with(|turn| close::check_open(turn).is_err()) {
            return None;
        }
        tokio::select! {
            biased;
            output = future => Some(output),
            () = closing => None,
        }
    }

    /// Polls `future` for at most `within_us`. The session's thread keeps the time, so that this needs no runtime.
    pub(crate) async fn within<F: Future>(&self, within_us: u64, future: F) -> Option<F::Output> {
        if !self.is_surely_ours() {
            return Some(future.await); // No thread keeps the time there, and nothing waits: every call is refused.
        }
        let (timer, fired) = oneshot::channel();
        self.with(|turn| close::set_timer(turn, turn.now.us().saturating_add(within_us), timer));
        tokio::select! {
            biased;
            output = future => Some(output),
            _ = fired => None,
        }
    }

    /// Returns whether this process connected the client. A forked child has its memory, but neither its thread nor its
    /// connections.
    ///
    /// The answer comes from the cached process ID. This is enough for what stays in this memory. A caller that sends,
    /// closes, or keeps the time asks [`Shared::is_surely_ours`].
    pub(crate) fn is_ours(&self) -> bool {
        self.known_process == self.world.process_as_known()
    }

    /// Like [`Shared::is_ours`], but also asks the system for the process ID.
    pub(crate) fn is_surely_ours(&self) -> bool {
        self.is_ours() && self.process == self.world.process()
    }

    /// Returns an error in a forked child: see [`Shared::is_ours`].
    pub(crate) fn check_usable(&self) -> Result<()> {
        if self.is_ours() { Ok(()) } else { Err(forked()) }
    }

    /// Returns an error in a forked child: see [`Shared::is_surely_ours`].
    pub(crate) fn check_surely_usable(&self) -> Result<()> {
        if self.is_surely_ours() { Ok(()) } else { Err(forked()) }
    }

    /// Returns an error in a forked child, and if the client is closed.
    pub(crate) fn check_open(&self) -> Result<()> {
        self.check_surely_usable()?;
        self.with(|turn| close::check_open(turn))
    }
}

fn forked() -> Error {
    let message = "this client belongs to the parent process of a fork: connect again in this process";
    Error::new(ErrorKind::Unsupported, message)
}
