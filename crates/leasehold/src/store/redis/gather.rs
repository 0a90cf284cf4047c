//! When requests are written: together with those that come at the same time.
//!
//! A write costs as much as all the rest of a request, and takes fifty of them as well as one. The client crate's driver
//! writes what it finds when it is polled, and a runtime runs first what was woken last: so the driver would come behind
//! each single request, and write it alone. Here it is polled as soon as *enough* requests were handed over since its last
//! write, and before that lets everything else go that is ready.
//!
//! - Enough is a part of those that are under way ([`Gather::enough`]). With few of them none is: there is nothing to
//!   gather, and to step aside costs more than a write. With many, whoever asks now is one of a crowd that asks now.
//! - Nothing waits for a request that does not come, and nothing for a time: where the driver was behind everybody else and
//!   nobody has added a request meanwhile, it is polled with those that there are.
//! - So it steps aside once for each request that it waits for, and that is at most [`AT_MOST`] times.
//!
//! It also knows whether the driver is polled at all ([`Gather::check_driven`]): on a runtime that stands still nothing is
//! written, and no answer is read.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use tokio::task::yield_now;

use crate::store::Progress;
use crate::sync::Mutex;

/// With fewer under way there is no crowd: the driver is polled whenever it is woken.
const CROWD: usize = 4;
/// One of so many that are under way is worth a write.
const SHARE: usize = 16;
/// So many are, however many are under way.
const AT_MOST: usize = 64;

/// What one link has under way.
#[derive(Default)]
pub(super) struct Gather {
    /// How many requests wait for their answers.
    under_way: AtomicUsize,
    /// How many of them were handed over since the driver was last polled.
    gathered: AtomicUsize,
    /// Whether [`Gather::check_driven`] has woken the driver, which was not polled since then.
    is_suspect: AtomicBool,
    driver: Mutex<Option<Waker>>,
}

/// A request, until its answer has come or nobody wants it any more.
pub(super) struct UnderWay<'a>(&'a Gather);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gather {
    /// Counts a request that is about to be handed to the driver.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.gathered.fetch_add(1, Ordering::Relaxed);
        UnderWay(self)
    }

    /// Looks whether the driver is polled while requests are under way. Nobody but it can tell, and it may have nothing to
    /// do while the server is silent. So the first look wakes it, and the second one sees whether it was polled.
    pub(super) fn check_driven(&self) -> Progress {
        match self.under_way.load(Ordering::Relaxed) {
            0 => Progress::Moving,
            _ if self.is_suspect.swap(true, Ordering::Relaxed) => Progress::Stalled,
            _ => {
                let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone();
                driver.into_iter().for_each(Waker::wake);
                Progress::Waiting
            }
        }
    }

    /// Whether requests were handed over since the driver was last polled.
    pub(super) fn has_unsent(&self) -> bool {
        self.gathered.load(Ordering::Relaxed) > 0
    }

    /// Runs the driver to its end.
    pub(super) async fn drive(&self, driver: impl Future<Output = ()>) {
        let (mut driver, mut aside) = (pin!(driver), pin!(yield_now()));
        // With how many gathered the driver stepped aside last.
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
                aside.set(yield_now());
                // Pending, and woken behind all that is ready; should that ever change, there is no turn to wait for.
                if aside.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
            seen = None;
            // Before the poll: what is handed over from now on may not be in this write.
            self.gathered.store(0, Ordering::Relaxed);
            driver.as_mut().poll(context)
        })
        .await;
    }

    /// So many requests are worth a write now.
    fn enough(&self) -> usize {
        match self.under_way.load(Ordering::Relaxed) {
            few if few < CROWD => 0,
            many => (many / SHARE).clamp(1, AT_MOST),
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

    /// A driver that counts how often it is polled, and who drives it.
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

        /// Adds so many requests.
        fn asks(&self, count: usize) -> Vec<UnderWay<'a>> {
            (0..count).map(|_| self.gather.begin()).collect()
        }

        /// Whether the driver is polled in this turn of its task.
        fn turn(&mut self) -> bool {
            let before = self.polled.get();
            let pending = self.driving.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending();
            assert!(pending, "it never ends");
            self.polled.get() > before
        }
    }

    /// How often a task was woken.
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn few_are_written_at_once() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        for count in 1..CROWD {
            let _under_way = stage.asks(count);
            assert!(stage.turn(), "{count} requests");
            assert!(stage.turn(), "their answers");
        }
    }

    #[test]
    fn a_crowd_is_written_when_a_part_of_it_has_gathered() {
        for (crowd, enough) in [(16, 1), (30, 1), (160, 10), (1_024, 64), (100_000, 64)] {
            let (gather, polled) = <(Gather, Cell<usize>)>::default();
            let mut stage = Stage::new(&gather, &polled);
            let _under_way = stage.asks(crowd);
            assert!(stage.turn());
            let mut _more = Vec::new();
            for nth in 1..=enough {
                _more.push(stage.asks(1));
                assert_eq!(stage.turn(), nth == enough, "request {nth} of {crowd}");
            }
        }
    }

    #[test]
    fn nothing_waits_for_a_request_that_does_not_come() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        let _under_way = stage.asks(1_000);
        assert!(stage.turn());
        for count in 0..62 {
            let _more = stage.asks(count);
            assert!(!stage.turn(), "{count} of 62: the others go first");
            assert!(stage.turn(), "{count}: and nobody came");
        }
    }

    #[test]
    fn answers_that_come_alone_are_read_behind_those_that_are_ready() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        let _under_way = stage.asks(100);
        assert!(stage.turn());
        assert!(!stage.turn() && stage.turn());
    }

    #[test]
    fn a_driver_that_nobody_polls_is_found_by_the_second_look() {
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
    fn a_request_is_unsent_until_the_driver_is_polled() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        let _one = stage.asks(1);
        assert!(gather.has_unsent());
        assert!(stage.turn() && !gather.has_unsent());
    }

    /// While the server is silent nothing polls the driver, although its runtime runs: the check has to wake it.
    #[test]
    fn a_look_wakes_the_driver() {
        let gather = Gather::default();
        let mut driving = pin!(gather.drive(poll_fn(|_| Poll::Pending)));
        let _one = gather.begin();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        assert!(driving.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&woken)))).is_pending());
        assert_eq!(gather.check_driven(), Progress::Waiting);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_over_counts_no_more() {
        let (gather, polled) = <(Gather, Cell<usize>)>::default();
        let mut stage = Stage::new(&gather, &polled);
        drop(stage.asks(1_000));
        assert!(stage.turn());
        let _one = stage.asks(1);
        assert!(stage.turn(), "it is alone");
    }

    /// Otherwise a request would lie there until somebody else asks.
    #[test]
    fn who_steps_aside_is_woken() {
        let gather = Gather::default();
        let mut driving = pin!(gather.drive(poll_fn(|_| Poll::Pending)));
        let _under_way: Vec<_> = (0..100).map(|_| gather.begin()).collect();
        let woken = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        assert!(driving.as_mut().poll(&mut context).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 0, "all of them at once are enough");
        assert!(driving.as_mut().poll(&mut context).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    }
}
