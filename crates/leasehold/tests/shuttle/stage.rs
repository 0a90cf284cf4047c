//! The common part of the scenes: clients, a section that only one holder may be in, and an end at which nothing is
//! left.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use crate::fence::Fenced;
use crate::seam::World;
use crate::{Builder, Guard, Leasehold, Result, Token};
use leasehold_testkit::history::Recorder;
use shuttle::future::block_on;
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use super::store::StepStore;
use super::world::Staged;

pub(crate) const NAME: &str = "stock";

pub(crate) struct Stage {
    world: Staged,
    store: StepStore,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let world = Staged::begin();
        Self { store: StepStore::new(&world), world }
    }

    pub(crate) fn client(&self) -> Leasehold {
        block_on(self.connect(Leasehold::builder(""))).unwrap()
    }

    pub(crate) fn connect(&self, builder: Builder) -> impl Future<Output = Result<Leasehold>> + use<> {
        builder.connect_to(Arc::new(self.store.clone()), Arc::new(self.world.clone()))
    }

    /// Returns whether the store granted this token itself. Otherwise it was handed on inside a client.
    pub(crate) fn has_granted(&self, token: Token) -> bool {
        self.store.has_granted(token)
    }

    /// Returns a recorder of a history, with the clock of this world.
    pub(crate) fn recorder(&self) -> Recorder {
        let world = self.world.clone();
        Recorder::in_memory().on_clock(move || world.now_us())
    }

    pub(crate) fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + use<> {
        self.world.sleep(duration)
    }

    /// Waits until everything has ended, and asserts that nothing is left. No wait may have been longer than this.
    #[track_caller]
    pub(crate) fn end(&self, within: Duration) {
        let took = self.world.end();
        assert_eq!(self.store.residue(), Vec::<String>::new(), "the store is empty");
        assert!(took <= within, "waited for a timer: {took:?}, at most {within:?}");
    }
}

/// The data that the lock protects.
#[derive(Default)]
pub(crate) struct Section {
    /// The token that is inside, and how many guards have it. Locked without any operation of the scheduler in it.
    inside: Mutex<(u64, usize)>,
    entered: AtomicUsize,
    fenced: Fenced<usize>,
}

impl Section {
    /// Works under this guard. No other lease may be inside at the same time.
    pub(crate) fn work(&self, guard: &Guard) {
        let token = guard.check().expect("a lease that was not taken away is valid");
        {
            let mut inside = self.inside.lock().unwrap();
            let (holder, times) = *inside;
            assert!(times == 0 || holder == token.get(), "tokens {holder} and {token} are both in the section");
            *inside = (token.get(), times + 1);
        }
        thread::yield_now();
        *self.fenced.write(token).expect("no newer token was in the section before") += 1;
        self.entered.fetch_add(1, Ordering::SeqCst);
        self.inside.lock().unwrap().1 -= 1;
    }

    pub(crate) fn entered(&self) -> usize {
        self.entered.load(Ordering::SeqCst)
    }
}

/// An action for a thread of its own.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Turns a future into work.
pub(crate) fn work(future: impl Future<Output = ()> + Send + 'static) -> Work {
    Box::new(move || block_on(future))
}

/// Runs these on threads of their own, to their ends.
pub(crate) fn together(works: impl IntoIterator<Item = Work>) {
    let threads: Vec<_> = works.into_iter().map(|work| thread::spawn(work)).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Polls a future a few times, as often as the schedule says, and drops it if it is not ready by then.
pub(crate) async fn impatient<F: Future>(future: F) -> Option<F::Output> {
    let mut left = thread_rng().gen_range(0..24);
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}
