//! P26: the names in whose records a session of ours may be, as holder or as waiter.
//!
//! A client that ends removes the name of its life, so that nothing of it is left behind. But if a record still
//! contains the session (its last request got no reply), others can notice its death only by that name. Then the name
//! stays, and others remove it. If it is unknown whether a record contains the session, the name stays, too.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold_spec::Name;

#[derive(Default)]
pub(super) struct Presence(Mutex<State>);

#[derive(Default)]
struct State {
    names: HashSet<Name>,
    is_over: bool,
}

impl Presence {
    /// Notes an acquire before it is carried out. Returns false after the end: then it must not be carried out.
    pub(super) fn enter(&self, name: &Name) -> bool {
        let mut state = self.state();
        if !state.is_over && !state.names.contains(name) {
            state.names.insert(name.clone());
        }
        !state.is_over
    }

    /// Notes that no session of ours is in the record any more, as a step has shown.
    pub(super) fn leave(&self, name: &Name) {
        self.state().names.remove(name);
    }

    /// Returns whether no record contains us. From now on no session of ours enters one.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state();
        state.is_over = true;
        state.names.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
