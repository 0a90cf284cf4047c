//! The state of the desk that others than its thread may read.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};

use super::presence::Presence;
use super::sentry::Life;
use super::turn::Waiting;

/// State that others than the thread may read, also while the thread waits for its turn.
#[derive(Default)]
pub(super) struct Shown {
    /// The number of pending requests of the client.
    pub(super) asked: AtomicUsize,
    pub(super) waiting: Waiting,
    pub(super) lives: Mutex<Vec<Arc<Life>>>,
    pub(super) presence: Presence,
}
