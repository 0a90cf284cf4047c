//! One direction of a connection: the parcels that have arrived and are not yet forwarded.
//!
//! One thread receives and another forwards, so that a stalled network still accepts what is sent into it: the sender's
//! write succeeds, its bytes wait in the lane, and they arrive later although the sender may have hung up long before.
//! That is the schedule behind every "late request".

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::control::{Direction, FaultId, Shared};

#[derive(Debug)]
pub(super) struct Lane {
    direction: Direction,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug)]
struct Queue {
    parcels: VecDeque<Parcel>,
    end: End,
}

/// Whole requests or replies.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) bytes: Vec<u8>,
    /// It is forwarded no earlier.
    pub(super) due: Instant,
    /// It is forwarded when this fault is lifted.
    pub(super) held_by: Option<FaultId>,
    stalled: Stalled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stalled {
    Never,
    Counted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// More may arrive.
    Open,
    /// Nothing more arrives, but the queued parcels are still forwarded.
    Finished,
    /// Nothing is forwarded any more.
    Cut,
}

impl Parcel {
    pub(super) fn new(bytes: Vec<u8>, due: Instant, held_by: Option<FaultId>) -> Self {
        Self { bytes, due, held_by, stalled: Stalled::Never }
    }
}

impl Lane {
    pub(super) fn new(direction: Direction) -> Self {
        let queue = Mutex::new(Queue { parcels: VecDeque::new(), end: End::Open });
        Self { direction, queue, changed: Condvar::new() }
    }

    pub(super) fn push(&self, parcel: Parcel) {
        let mut queue = self.lock();
        if queue.end == End::Open {
            queue.parcels.push_back(parcel);
            self.changed.notify_one();
        }
    }

    /// Ends the input; the queued parcels are still forwarded.
    pub(super) fn finish(&self) {
        let mut queue = self.lock();
        if queue.end == End::Open {
            queue.end = End::Finished;
        }
        self.changed.notify_one();
    }

    /// Stops forwarding.
    pub(super) fn cut(&self) {
        let mut queue = self.lock();
        queue.end = End::Cut;
        queue.parcels.clear();
        self.changed.notify_one();
    }

    /// Re-checks the queue after a change of the control.
    pub(super) fn recheck(&self) {
        // Under the lock: between the forwarder's check of the control and its wait, the notification would be lost.
        let _queue = self.lock();
        self.changed.notify_one();
    }

    /// Forwards what arrives to `to`, until the lane ends. If the receiver has gone, the bytes are discarded: the lane
    /// ends when its sender does.
    pub(super) fn deliver(&self, shared: &Shared, to: &TcpStream) {
        let mut receiver = Receiver::There;
        while let Some(bytes) = self.next(shared) {
            if receiver == Receiver::There && self.write(to, &bytes).is_err() {
                receiver = Receiver::Gone;
            }
        }
    }

    /// Waits for the next bytes to forward.
    fn next(&self, shared: &Shared) -> Option<Vec<u8>> {
        let mut queue = self.lock();
        loop {
            if let Some(parcel) = queue.parcels.front() {
                let now = Instant::now();
                let (held_by, due) = (parcel.held_by, parcel.due);
                if self.is_shut(shared, &mut queue, held_by) {
                    queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                } else if due > now {
                    let waited = self.changed.wait_timeout(queue, due - now);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                } else {
                    return queue.parcels.pop_front().map(|parcel| parcel.bytes);
                }
            } else if queue.end == End::Open {
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            } else {
                return None;
            }
        }
    }

    fn is_shut(&self, shared: &Shared, queue: &mut Queue, held_by: Option<FaultId>) -> bool {
        let control = shared.lock();
        let held = held_by.is_some_and(|id| !control.faults[id].lifted);
        if !control.is_stalled(self.direction) {
            return held;
        }
        drop(control);
        let new = queue.parcels.iter_mut().filter(|parcel| parcel.stalled == Stalled::Never);
        let count = new.map(|parcel| parcel.stalled = Stalled::Counted).count();
        if count > 0 {
            shared.change(|control| (0..count).for_each(|_| control.count_stalled(self.direction)));
        }
        true
    }

    /// Writes all, unless the lane is cut meanwhile: a receiver that reads nothing would block us for ever.
    fn write(&self, mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match to.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The write timeout of the stream has passed.
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if self.lock().end == End::Cut {
                        return Err(e);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiver {
    There,
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_drops_everything_and_an_end_drops_nothing() {
        let shared = Shared::new(0);
        let lane = || {
            let lane = Lane::new(Direction::ToServer);
            lane.push(Parcel::new(b"one".to_vec(), Instant::now(), None));
            lane
        };
        let finished = lane();
        finished.finish();
        assert_eq!(finished.next(&shared), Some(b"one".to_vec()));
        assert_eq!(finished.next(&shared), None);
        let cut = lane();
        cut.cut();
        cut.push(Parcel::new(b"two".to_vec(), Instant::now(), None));
        assert_eq!(cut.next(&shared), None);
    }
}
