//! P26: the names in whose records a session of ours may be, as holder or in line.
//!
//! A client that ends takes the name of its life back, so that nothing of it is left behind. But where a record still has
//! it (it ended unheard), that name is all that tells others that it is dead. So it is kept then, for others to bury. What
//! is not known counts as being there.

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
    /// Before an acquire is carried out. Answers whether it may be: not behind the end.
    pub(super) fn enter(&self, name: &Name) -> bool {
        let mut state = self.state();
        if !state.is_over && !state.names.contains(name) {
            state.names.insert(name.clone());
        }
        !state.is_over
    }

    /// Where a step has shown that none of ours is in the record any more.
    pub(super) fn leave(&self, name: &Name) {
        self.state().names.remove(name);
    }

    /// Answers whether we are nowhere. From now on nobody enters.
    pub(super) fn end(&self) -> bool {
        let mut state = self.state();
        state.is_over = true;
        state.names.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
