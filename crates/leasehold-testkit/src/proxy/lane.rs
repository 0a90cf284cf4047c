//! One direction of a connection: what has arrived and not yet gone on.
//!
//! Arriving and going on are two threads, so that a stalled network still takes what is sent into it: the sender's write
//! succeeds, its bytes stand in the lane, and they arrive later although the sender may have hung up long since. That is
//! the schedule behind every "late request".

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
    /// It goes on no earlier.
    pub(super) due: Instant,
    /// It goes on when this fault is lifted.
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
    /// There is more to come.
    Open,
    /// What is here still goes on.
    Finished,
    /// Nothing goes on any more.
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

    /// Nothing more comes; what is here goes on.
    pub(super) fn finish(&self) {
        let mut queue = self.lock();
        if queue.end == End::Open {
            queue.end = End::Finished;
        }
        self.changed.notify_one();
    }

    /// Nothing goes on any more.
    pub(super) fn cut(&self) {
        let mut queue = self.lock();
        queue.end = End::Cut;
        queue.parcels.clear();
        self.changed.notify_one();
    }

    /// The control has changed.
    pub(super) fn look_again(&self) {
        // Under the lock: between a look at the control and the wait that follows it, the bell would not be heard.
        let _queue = self.lock();
        self.changed.notify_one();
    }

    /// Carries what arrives to `to`, until the lane ends. With its receiver gone, it goes on into the void: the lane ends
    /// when its sender does.
    pub(super) fn deliver(&self, shared: &Shared, to: &TcpStream) {
        let mut receiver = Receiver::There;
        while let Some(bytes) = self.next(shared) {
            if receiver == Receiver::There && self.write(to, &bytes).is_err() {
                receiver = Receiver::Gone;
            }
        }
    }

    /// What goes on next; waits for it.
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

    /// Writes all, unless the lane is cut meanwhile: a receiver that reads nothing would keep us for ever.
    fn write(&self, mut to: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match to.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The write time-out of the stream has passed.
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
    fn nothing_goes_on_after_a_cut_and_everything_after_an_end() {
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
