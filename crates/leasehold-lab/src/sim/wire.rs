//! The client's end of a connection: the requests for it, the messages that arrive, and the task that moves both.
//!
//! As with a real client crate, the socket belongs to a task, the *driver*, and the driver to the runtime that opened
//! the connection. While that runtime stands still, nothing is sent and nothing is read, however many callers wait on
//! other runtimes. When the runtime ends, the connection does.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use leasehold::seam::Progress;
use tokio::sync::oneshot;

use super::exec::lock;

/// The requests, answers and pushes of a connection, and its route.
pub(super) trait Way: Send + Sync + 'static {
    type Ask: Send + 'static;
    type Reply: Send + 'static;
    type Push: Send + 'static;

    /// Sends a request.
    fn send(&self, number: u64, ask: Self::Ask);

    /// Whether a request may leave in one message with those beside it (P53).
    fn may_join(&self, _: &Self::Ask) -> bool {
        false
    }

    /// Sends such requests in one message. There may be none.
    fn send_together(&self, asks: Vec<(u64, Self::Ask)>) {
        asks.into_iter().for_each(|(number, ask)| self.send(number, ask));
    }

    /// Notes an answer that is read, whether any caller waits for it or not.
    fn answered(&self, said: &Self::Reply);

    /// Handles a push that is read.
    fn pushed(&self, push: Self::Push);

    /// Notes that the socket is closed, at the latest now.
    fn ended(&self);
}

/// Shared by the link, by the driver, and by the network.
pub(super) struct Wire<W: Way> {
    is_closed: AtomicBool,
    /// [`Wire::check_driven`] has woken the driver, which was not polled since then.
    is_suspect: AtomicBool,
    ends: Mutex<Ends<W>>,
}

struct Ends<W: Way> {
    /// The requests that were handed over and are not sent yet.
    outbox: VecDeque<(u64, W::Ask)>,
    /// The messages that have arrived and are not read yet.
    socket: VecDeque<Incoming<W>>,
    driver: Option<Waker>,
    waiting: BTreeMap<u64, oneshot::Sender<W::Reply>>,
    next: u64,
    /// The driver has ended: requests are not accepted any more.
    has_ended: bool,
}

/// A message that arrives.
pub(super) enum Incoming<W: Way> {
    Reply(u64, W::Reply),
    Push(W::Push),
    /// The connection is gone.
    Broken,
}

impl<W: Way> Default for Wire<W> {
    fn default() -> Self {
        let (outbox, socket, waiting) = (VecDeque::new(), VecDeque::new(), BTreeMap::new());
        let ends = Ends { outbox, socket, driver: None, waiting, next: 0, has_ended: false };
        Self { is_closed: AtomicBool::new(false), is_suspect: AtomicBool::new(false), ends: Mutex::new(ends) }
    }
}

impl<W: Way> Wire<W> {
    /// Delivers a message, whether any caller reads it or not.
    pub(super) fn arrive(&self, message: Incoming<W>) {
        let mut ends = lock(&self.ends);
        ends.socket.push_back(message);
        let driver = ends.driver.take();
        drop(ends);
        driver.into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Gives the connection up. Requests in flight fail when the driver notices that.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let driver = lock(&self.ends).driver.take();
        driver.into_iter().for_each(Waker::wake);
    }

    /// See [`Link::check_driven`](leasehold::seam::Link::check_driven).
    pub(super) fn check_driven(&self) -> Progress {
        let is_idle = lock(&self.ends).waiting.values().all(oneshot::Sender::is_closed);
        if is_idle { Progress::Moving } else { self.check_polled() }
    }

    /// See [`Link::check_read`](leasehold::seam::Link::check_read).
    pub(super) fn check_polled(&self) -> Progress {
        if self.is_suspect.swap(true, Ordering::Relaxed) {
            return Progress::Stalled;
        }
        let driver = lock(&self.ends).driver.take();
        driver.into_iter().for_each(Waker::wake);
        Progress::Waiting
    }

    /// See [`Link::has_unsent`](leasehold::seam::Link::has_unsent).
    pub(super) fn has_unsent(&self) -> bool {
        !lock(&self.ends).outbox.is_empty()
    }

    /// Sends a request, and returns its answer. The request is handed over at the first poll. The future may be dropped
    /// after that, and the request continues. Returns `None` if the connection is gone. A connection that was given up
    /// is gone when its driver notices that; until then it accepts requests that are never sent.
    pub(super) fn exchange(self: &Arc<Self>, ask: W::Ask) -> impl Future<Output = Option<W::Reply>> + Send + use<W> {
        let wire = Arc::clone(self);
        async move {
            let (sender, said) = oneshot::channel();
            let driver = {
                let mut ends = lock(&wire.ends);
                if ends.has_ended {
                    return None;
                }
                ends.next += 1;
                let number = ends.next;
                ends.waiting.insert(number, sender);
                ends.outbox.push_back((number, ask));
                ends.driver.take()
            };
            driver.into_iter().for_each(Waker::wake);
            drop(wire);
            said.await.ok()
        }
    }

    /// Moves requests and messages until the connection is closed or gone. If this is dropped, with its runtime, the
    /// connection ends as well.
    pub(super) fn drive(self: &Arc<Self>, way: W) -> impl Future<Output = ()> + Send + use<W> {
        let ending = Ending { wire: Arc::clone(self), way };
        async move { poll_fn(|context| ending.wire.drive_once(&ending.way, context)).await }
    }

    /// Reads one message in each turn, so that other tasks may run in between.
    fn drive_once(&self, way: &W, context: &mut Context<'_>) -> Poll<()> {
        if self.is_closed() {
            return Poll::Ready(());
        }
        self.is_suspect.store(false, Ordering::Relaxed);
        let mut ends = lock(&self.ends);
        let (mut outbox, message) = (std::mem::take(&mut ends.outbox), ends.socket.pop_front());
        // A request that leaves with others is not sent if its caller has given it up by now.
        outbox.retain(|(number, ask)| {
            let is_given_up = ends.waiting.get(number).is_none_or(oneshot::Sender::is_closed);
            if is_given_up && way.may_join(ask) {
                ends.waiting.remove(number);
            }
            !is_given_up || !way.may_join(ask)
        });
        let waiting = if let Some(Incoming::Reply(number, _)) = &message { ends.waiting.remove(number) } else { None };
        if message.is_none() {
            ends.driver = Some(context.waker().clone());
        }
        drop(ends);
        let mut together = Vec::new();
        for (number, ask) in outbox {
            if way.may_join(&ask) {
                together.push((number, ask));
            } else {
                way.send_together(std::mem::take(&mut together));
                way.send(number, ask);
            }
        }
        way.send_together(together);
        match message {
            None => return Poll::Pending,
            Some(Incoming::Reply(_, said)) => {
                way.answered(&said);
                if let Some(waiting) = waiting {
                    drop(waiting.send(said));
                }
            }
            Some(Incoming::Push(push)) => way.pushed(push),
            Some(Incoming::Broken) => return Poll::Ready(()),
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Marks the connection as gone, however its driver ended.
struct Ending<W: Way> {
    wire: Arc<Wire<W>>,
    way: W,
}

impl<W: Way> Drop for Ending<W> {
    fn drop(&mut self) {
        self.wire.is_closed.store(true, Ordering::Release);
        let mut ends = lock(&self.wire.ends);
        let (waiting, driver) = (std::mem::take(&mut ends.waiting), ends.driver.take());
        ends.has_ended = true;
        ends.outbox.clear();
        ends.socket.clear();
        drop(ends);
        self.way.ended();
        drop((waiting, driver));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};

    use super::*;

    /// A connection whose requests, answers and pushes are numbers.
    struct Numbers(Seen);

    impl Way for Numbers {
        type Ask = u64;
        type Reply = u64;
        type Push = u64;

        fn send(&self, number: u64, ask: u64) {
            lock(&self.0).push(format!("{number} asks {ask}"));
        }

        fn answered(&self, _: &u64) {}

        fn pushed(&self, push: u64) {
            lock(&self.0).push(format!("push {push}"));
        }

        fn ended(&self) {
            lock(&self.0).push("ended".into());
        }
    }

    type Driver = Pin<Box<dyn Future<Output = ()>>>;
    type Seen = Arc<Mutex<Vec<String>>>;

    fn connection() -> (Arc<Wire<Numbers>>, Driver, Seen) {
        let (wire, seen) = (Arc::<Wire<Numbers>>::default(), Arc::new(Mutex::default()));
        let driver = Box::pin(wire.drive(Numbers(Arc::clone(&seen))));
        (wire, driver, seen)
    }

    fn turn<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn without_a_driver_nothing_is_sent_or_read() {
        let (wire, mut driver, seen) = connection();
        let (mut first, mut second) = (pin!(wire.exchange(7)), pin!(wire.exchange(8)));
        assert!(turn(first.as_mut()).is_pending() && turn(second.as_mut()).is_pending());
        wire.arrive(Incoming::Reply(1, 70));
        assert!(lock(&seen).is_empty() && turn(first.as_mut()).is_pending());
        assert_eq!((wire.check_driven(), wire.check_driven()), (Progress::Waiting, Progress::Stalled));
        assert!(turn(driver.as_mut()).is_pending());
        assert_eq!(*lock(&seen), ["1 asks 7", "2 asks 8"]);
        assert_eq!((turn(first.as_mut()), wire.check_driven()), (Poll::Ready(Some(70)), Progress::Waiting));
    }

    #[test]
    fn a_request_on_a_closed_connection_is_not_sent_and_fails_when_its_driver_runs() {
        let (wire, mut driver, seen) = connection();
        let mut asked = pin!(wire.exchange(7));
        assert!(turn(asked.as_mut()).is_pending());
        wire.close();
        assert!(wire.is_closed() && turn(asked.as_mut()).is_pending());
        assert!(turn(driver.as_mut()).is_ready());
        drop(driver);
        assert_eq!(turn(asked.as_mut()), Poll::Ready(None));
        assert_eq!(*lock(&seen), ["ended"]);
    }

    #[test]
    fn a_connection_ends_with_its_driver() {
        let (wire, driver, seen) = connection();
        let mut asked = pin!(wire.exchange(7));
        assert!(turn(asked.as_mut()).is_pending());
        drop(driver);
        assert_eq!((turn(asked.as_mut()), turn(pin!(wire.exchange(8)))), (Poll::Ready(None), Poll::Ready(None)));
        assert!(wire.is_closed());
        assert_eq!(*lock(&seen), ["ended"]);
    }
}
