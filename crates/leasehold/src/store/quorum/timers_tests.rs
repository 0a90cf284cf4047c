//! Two keepers of one set of alarms.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};

use super::*;
use crate::world::{Address, Pending, Socket};

/// A world whose time a test sets. Its sleeps never end.
#[derive(Default)]
struct Still(AtomicU64);

impl World for Still {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn wall_us(&self) -> u64 {
        self.now_us()
    }

    fn random(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }

    fn host(&self) -> String {
        String::new()
    }

    fn process(&self) -> u32 {
        1
    }

    fn sleep(&self, _: Duration) -> Pending<()> {
        Box::pin(std::future::pending())
    }

    fn connect(&self, _: &Address) -> Pending<io::Result<Box<dyn Socket>>> {
        Box::pin(std::future::ready(Err(io::ErrorKind::Unsupported.into())))
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        Err(task)
    }

    fn spawn_session(&self, _: Pending<()>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn a_keeper_that_ends_leaves_its_alarms_to_the_other() {
    let (world, timers) = (Arc::new(Still::default()), Arc::new(Timers::default()));
    let is_over = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    let keep = || (Arc::clone(&timers), Arc::clone(&world) as Arc<dyn World>);
    let context = &mut Context::from_waker(Waker::noop());
    let ((old, old_world), (new, new_world)) = (keep(), keep());
    let mut old = pin!(old.keep(old_world, move || ends.load(Ordering::Relaxed), |_| {}));
    let mut new = pin!(new.keep(new_world, || false, |_| {}));
    assert!(old.as_mut().poll(context).is_pending() && new.as_mut().poll(context).is_pending());
    // This wakes the old keeper, which is over.
    let mut first = pin!(timers.at(10));
    is_over.store(true, Ordering::Relaxed);
    assert!(old.as_mut().poll(context).is_ready());
    assert!(new.as_mut().poll(context).is_pending() && first.as_mut().poll(context).is_pending());
    world.0.store(20, Ordering::Relaxed);
    let mut second = pin!(timers.at(15));
    assert!(new.as_mut().poll(context).is_pending());
    assert!(first.as_mut().poll(context).is_ready(), "the new keeper rings the alarm of the old one");
    assert!(second.as_mut().poll(context).is_ready(), "and an alarm that was set after the end of the old keeper");
}

/// The keeper was created and has not run yet.
#[test]
fn work_is_adopted_before_the_first_poll_of_the_keeper() {
    let (world, timers) = (Arc::new(Still::default()), Arc::new(Timers::default()));
    let (held, here) = (Arc::new(()), Arc::new(()));
    let adopt = |owned: &Arc<()>| {
        let owned = Arc::clone(owned);
        timers.adopt(Box::pin(async move { drop(owned) }));
    };
    adopt(&here);
    assert_eq!(Arc::strong_count(&here), 1, "there is no keeper");
    let keep = Arc::clone(&timers).keep(world, || false, |_| {});
    adopt(&held);
    assert_eq!(Arc::strong_count(&held), 2, "dropped");
    drop(keep);
    assert_eq!(Arc::strong_count(&held), 1, "the last keeper has ended");
}

/// Most rounds end long before their deadline. Without the removal an alarm would hold its memory until then.
#[test]
fn a_dropped_alarm_is_removed() {
    let timers = Arc::new(Timers::default());
    let context = &mut Context::from_waker(Waker::noop());
    let mut polled = Box::pin(timers.at(10));
    assert!(polled.as_mut().poll(context).is_pending());
    let unpolled = timers.at(10);
    assert_eq!(timers.state().alarms.len(), 2);
    drop((polled, unpolled));
    assert!(timers.state().alarms.is_empty());
}
