//! Timed events: a function is called, a task is woken, or a sleep ends.

use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};

use super::exec::{Part, Pid, lock};

pub(super) type Call = Box<dyn FnOnce() + Send>;

pub(super) struct Timer {
    pub(super) at_us: u64,
    pub(super) tie: (u64, u64),
    pub(super) what: What,
}

pub(super) enum What {
    Call(Call),
    Ring { bell: Weak<Mutex<Bell>>, pid: Pid, part: Part, asleep_us: u64 },
    Wake(u64),
}

/// The state that a sleep waits for.
#[derive(Default)]
pub(super) struct Bell {
    has_rung: bool,
    waker: Option<Waker>,
}

impl Bell {
    pub(super) fn ring(bell: &Mutex<Self>) {
        let mut bell = lock(bell);
        bell.has_rung = true;
        let waker = bell.waker.take();
        drop(bell);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.tie).cmp(&(other.at_us, other.tie))
    }
}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timer {}

/// A sleep: ready once its bell has rung.
pub(super) struct Sleep(pub(super) Arc<Mutex<Bell>>);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut bell = lock(&self.0);
        if bell.has_rung {
            return Poll::Ready(());
        }
        bell.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
