//! The right of an attempt or a waiter to keep the inbox with the thread (P17).

use std::sync::Arc;

/// Keeps the inbox with the session's thread as long as a clone of it exists. An attempt or a waiter has a clone if its
/// caller does not read the lane, or if a re-check does not make up for a message that is lost there.
#[derive(Clone, Default)]
pub(crate) struct InboxKeeper(Arc<()>);

impl InboxKeeper {
    /// Returns whether there are clones of it.
    pub(crate) fn has_clones(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}
