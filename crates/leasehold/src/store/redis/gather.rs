//! Writes requests that come at the same time together.
//!
//! A write costs as much as all the rest of a request, and fifty requests fit in one write. The client crate's driver
//! writes the requests that it finds when it is polled. But a runtime first runs the task that was woken last, so the
//! driver would run after each single request and write it alone. Here the driver is polled when *enough* requests were
//! added since its last write. Before that, it lets all other tasks that are ready run.
//!
//! - Enough is a share of the requests in flight ([`Gather::enough`]). With few of them it is 0: there is nothing to
//!   gather, and to yield costs more than a write. With many requests in flight, a new request is likely one of many.
//! - The driver uses no timer. If it has let other tasks run and no request was added, it writes what has gathered.
//! - So it lets others run once for each request that it waits for, and at most [`ENOUGH_MAX`] times.
//! - On a runtime with one thread, it does so by tokio's `yield_now`, because callers may be in the future that the runtime
//!   blocks on. Elsewhere it wakes itself: `yield_now` would also ask the system for new events each time. With
//!   `yield_now`, 64 tasks on two threads made 0.82 times as many pairs (`leasehold-bench uncontended --tasks 64`).
//!
//! [`Gather::check_driven`] finds out whether the driver is polled at all: if its runtime stands still, nothing is
//! written and no reply is read.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::yield_now;

use crate::store::Progress;
use crate::sync::Mutex;

/// With fewer requests in flight, the driver is polled whenever it is woken, and a request is sent by its own script.
const CROWD: usize = 4;
/// The share of the requests in flight that is worth a write, and that gets its replies in one turn: one in so many.
const SHARE: usize = 4;
/// This many requests are always worth a write.
const ENOUGH_MAX: usize = 64;

/// The requests of one link that are in flight.
#[derive(Default)]
pub(super) struct Gather {
    /// The number of requests that wait for their replies.
    in_flight: AtomicUsize,
    /// The number of requests that were added since the driver was last polled.
    gathered: AtomicUsize,
    /// Whether [`Gather::check_driven`] has woken the driver and it was not polled since then.
    is_suspect: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

/// A request in flight. It is dropped when the reply has come or the caller gives up.
pub(super) struct InFlight<'a>(&'a Gather);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gather {
    /// Counts a request that the driver is about to get.
    pub(super) fn begin(&self) -> InFlight<'_> {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.gathered.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }

    /// Checks that the driver is polled while requests are in flight. It may have nothing to do while the server is
    /// silent. So the first check wakes it, and the second one sees whether it was polled.
    pub(super) fn check_driven(&self) -> Progress {
        match self.in_flight.load(Ordering::Relaxed) {
            0 => Progress::Moving,
            _ => self.check_polled(),
        }
    }

    /// Checks that the driver is polled, whether requests are in flight or not.
    pub(super) fn check_polled(&self) -> Progress {
        if self.is_suspect.swap(true, Ordering::Relaxed) {
            return Progress::Stalled;
        }
        self.wake();
        Progress::Waiting
    }

    /// Returns whether requests were added since the driver was last polled.
    pub(super) fn has_unsent(&self) -> bool {
        self.gathered.load(Ordering::Relaxed) > 0
    }

    /// Returns whether at least three other requests are in flight.
    pub(super) fn is_crowded(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) + 1 >= CROWD
    }

    /// Returns the number of requests that get their replies in one turn of the driver.
    pub(super) fn share(&self) -> usize {
        (self.in_flight.load(Ordering::Relaxed) / SHARE).max(1)
    }

    /// Wakes the driver: there is something to send.
    pub(super) fn wake(&self) {
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        driver.into_iter().for_each(Waker::wake);
    }

    /// Runs the driver until it ends.
    pub(super) async fn drive(&self, driver: impl Future<Output = ()>) {
        let (mut driver, mut aside) = (pin!(driver), pin!(yield_now()));
        // On a runtime with one thread, the future of `block_on` runs only after all spawned tasks.
        let has_one_thread = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
        // The number of gathered requests when the driver last let other tasks run.
        let (mut seen, mut waker) = (None, Waker::noop().clone());
        poll_fn(|context| {
            self.is_suspect.store(false, Ordering::Relaxed);
            if !waker.will_wake(context.waker()) {
                waker.clone_from(context.waker());
                *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
            }
            let gathered = self.gathered.load(Ordering::Relaxed);
            if gathered < self.enough() && seen != Some(gathered) {
                seen = Some(gathered);
                if !has_one_thread {
                    // The runtime puts this task behind all others that are ready.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                aside.set(yield_now());
                // It is pending, and is woken after the future that the runtime blocks on. If tokio ever changes that,
                // there is nothing to wait for.
                if aside.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
            seen = None;
            // Before the poll: requests that are added from now on may not be in this write.
            self.gathered.store(0, Ordering::Relaxed);
            driver.as_mut().poll(context)
        })
        .await;
    }

    /// Returns the number of requests that are worth a write now.
    fn enough(&self) -> usize {
        match self.in_flight.load(Ordering::Relaxed) {
            few if few < CROWD => 0,
            many => (many / SHARE).clamp(1, ENOUGH_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Wake, Waker};

    use super::*;

    /// A driver that counts how often it is polled.
    struct Stage<'a> {
        gather: &'a Gather,
        polled: &'a Cell<usize>,
        driving: Pin<Box<dyn Future<Output = ()> + 'a>>,
    }

    impl<'a> Stage<'a> {
        fn new(gather: &'a Gather, polled: &'a Cell<usize>) -> Self {
            let driver = poll_fn(move |_| {
                polled.set(polled.get() + 1);
                Poll::<()>::Pending
            });
            let mut stage = Self { gather, polled, driving: Box::pin(gather.drive(driver)) };
            assert!(stage.turn(), "its first turn");
            stage
        }

        /// Adds this number of requests.
        fn asks(&self, count: usize) -> Vec<InFlight<'a>> {
            (0..count).map(|_| self.gather.begin()).collect()
        }

        /// Returns whether the driver is polled in this turn of its task.
        fn turn(&mut self) -> bool {
            let before = self.polled.get();
            let pending = self.driving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
            assert!(pending, "it never ends");
            self.polled.get() > before
        }
    }

    /// Counts how often a task was woken.
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn few_requests_are_written_immediately() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        for count in 1..CROWD {
            let _requests = stage.asks(count);
            assert!(stage.turn(), "{count} requests");
            assert!(stage.turn(), "their answers");
        }
    }

    #[test]
    fn many_requests_are_written_when_a_share_has_gathered() {
        for (crowd, enough) in [(16, 5), (30, 9), (160, 53), (1_024, 64), (100_000, 64)] {
            let (gather, polled) = <(Gather, Cell<usize>)>::default();
            let mut stage = Stage::new(&gather, &polled);
            let _requests = stage.asks(crowd);
            assert!(stage.turn());
            let mut _more = Vec::new();
            for nth in 1..=enough {
                _more.push(stage.asks(1));
                assert_eq!(stage.turn(), nth == enough, "request {nth} of {crowd}");
            }
        }
    }

    #[test]
    fn the_driver_never_waits_for_a_request_that_does_not_come() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        let _requests = stage.asks(1_000);
        assert!(stage.turn());
        for count in 0..62 {
            let _more = stage.asks(count);
            assert!(!stage.turn(), "{count} of 62: the others go first");
            assert!(stage.turn(), "{count}: and nobody came");
        }
    }

    #[test]
    fn a_reply_alone_is_read_after_other_ready_tasks() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        let _requests = stage.asks(100);
        assert!(stage.turn());
        assert!(!stage.turn() && stage.turn());
    }

    #[test]
    fn the_second_check_finds_a_driver_that_nobody_polls() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        assert_eq!(gather.check_driven(), Progress::Moving, "nothing is asked");
        let one = stage.asks(1);
        assert_eq!(gather.check_driven(), Progress::Waiting);
        assert!(stage.turn());
        assert_eq!(gather.check_driven(), Progress::Waiting, "its answer may be there, unread");
        assert_eq!(gather.check_driven(), Progress::Stalled);
        assert!(stage.turn());
        drop(one);
        assert_eq!(gather.check_driven(), Progress::Moving, "it was answered");
        let _another = stage.asks(1);
        assert_eq!(gather.check_driven(), Progress::Waiting);
        assert_eq!(gather.check_driven(), Progress::Stalled);
    }

    #[test]
    fn a_driver_without_requests_can_be_checked() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        assert_eq!(gather.check_polled(), Progress::Waiting);
        assert!(stage.turn());
        assert_eq!(gather.check_polled(), Progress::Waiting);
        assert_eq!(gather.check_polled(), Progress::Stalled);
    }

    #[test]
    fn a_request_is_unsent_until_the_driver_is_polled() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        let _one = stage.asks(1);
        assert!(gather.has_unsent());
        assert!(stage.turn() && !gather.has_unsent());
    }

    /// While the server is silent, nothing polls the driver although its runtime runs. So the check must wake it.
    #[test]
    fn a_check_wakes_the_driver() {
        let gather = Gather::default();
        let mut driving = pin!(gather.drive(poll_fn(|_| Poll::Pending)));
        let _one = gather.begin();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        assert!(driving.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&woken)))).is_pending());
        assert_eq!(gather.check_driven(), Progress::Waiting);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn dropped_requests_do_not_count() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        drop(stage.asks(1_000));
        assert!(stage.turn());
        let _one = stage.asks(1);
        assert!(stage.turn(), "it is alone");
    }

    /// Otherwise a request would stay unsent until somebody sends another one.
    #[test]
    fn a_driver_that_yields_is_woken() {
        let gather = Gather::default();
        let mut driving = pin!(gather.drive(poll_fn(|_| Poll::Pending)));
        let _requests: Vec<_> = (0..100).map(|_| gather.begin()).collect();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        assert!(driving.as_mut().poll(&mut context).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0, "all of them at once are enough");
        assert!(driving.as_mut().poll(&mut context).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}
