//! The numbers and IDs that a session gives out.

use std::sync::Arc;

use leasehold_spec::{GrantId, SessionId};

use crate::world::World;

/// How many random numbers are drawn at once: a system call for each would be slow.
const DRAWN: usize = 32;

pub(crate) struct Ids {
    pub(crate) session: SessionId,
    world: Arc<dyn World>,
    next_number: u64,
    last_serial: u64,
    drawn: Vec<u64>,
}

impl Ids {
    pub(crate) fn new(session: SessionId, world: Arc<dyn World>) -> Self {
        Self { session, world, next_number: 1, last_serial: 1, drawn: Vec::new() }
    }

    pub(crate) fn grant_id(&mut self) -> GrantId {
        GrantId { session: self.session, counter: self.number(), nonce: self.random() }
    }

    /// Returns a number for an attempt, a local queue, or a waiter. No two of them have the same.
    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// Returns a serial for a request.
    pub(crate) fn serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    pub(crate) fn last_serial(&self) -> u64 {
        self.last_serial
    }

    pub(crate) fn random(&mut self) -> u64 {
        self.drawn.pop().unwrap_or_else(|| {
            let mut bytes = [0; 8 * DRAWN];
            self.world.random(&mut bytes);
            let (numbers, _) = bytes.as_chunks();
            self.drawn.extend(numbers[1..].iter().map(|number| u64::from_ne_bytes(*number)));
            u64::from_ne_bytes(numbers[0])
        })
    }
}
