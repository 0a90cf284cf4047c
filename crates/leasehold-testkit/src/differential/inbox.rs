//! The inbox of the crate's own link.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

/// The messages that a link has received, and those that it should have received.
#[derive(Debug)]
pub struct Inbox<T> {
    received: Arc<Mutex<Vec<T>>>,
    due: Vec<T>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { received: Arc::default(), due: Vec::new() }
    }
}

impl<T: Debug + PartialEq + Send + 'static> Inbox<T> {
    /// Returns a function that records a received message.
    pub fn receiver(&self) -> impl Fn(T) + Send + Sync + use<T> {
        let received = Arc::clone(&self.received);
        move |message| received.lock().unwrap_or_else(PoisonError::into_inner).push(message)
    }

    /// Records a message that the link should receive.
    pub fn expect(&mut self, message: T) {
        self.due.push(message);
    }

    /// Compares the messages with those that should have arrived, and forgets both. The caller has waited for a reply on
    /// the same connection, which comes after every message that was sent before.
    ///
    /// # Errors
    /// If they differ: the report of a failure.
    pub fn compare(&mut self) -> Result<(), String> {
        let received = std::mem::take(&mut *self.received.lock().unwrap_or_else(PoisonError::into_inner));
        let due = std::mem::take(&mut self.due);
        if received == due {
            return Ok(());
        }
        Err(format!("the link should receive\n{due:?}\nand it has received\n{received:?}"))
    }
}
