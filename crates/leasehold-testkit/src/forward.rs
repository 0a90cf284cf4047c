//! Links and worlds that forward every call to another one, except for the calls that a test overrides.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold::NodeView;
use leasehold::seam::{Address, Fault, Guess, Inbox, Link, Pending, Progress, Real, Socket, World};
use leasehold_spec::{Acquire, Answer, Kind, Name, Op, Renew, SessionId};

/// Turns a [`ForwardLink`] into a [`Link`], and a [`ForwardWorld`] into a [`World`].
pub struct Forward<T>(pub T);

/// A link that forwards every call to [`ForwardLink::link`] by default.
#[expect(missing_docs, reason = "the methods are those of `Link`")]
pub trait ForwardLink: Send + Sync + 'static {
    /// Returns the link that receives the calls.
    fn link(&self) -> &Arc<dyn Link>;

    fn apply(&self, name: &Name, op: &Op, guess: Guess) -> Pending<Result<Answer, Fault>> {
        self.link().apply(name, op, guess)
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        self.link().inspect(name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)], kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
        self.link().renew(batch, kind)
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        self.link().attach(session, inbox)
    }

    fn is_closed(&self) -> bool {
        self.link().is_closed()
    }

    fn close(&self) {
        self.link().close();
    }
}

impl<T: ForwardLink> Link for Forward<T> {
    fn apply(&self, name: &Name, op: &Op, guess: Guess) -> Pending<Result<Answer, Fault>> {
        self.0.apply(name, op, guess)
    }

    fn inspect(&self, name: &Name, guess: Guess) -> Pending<Result<(Answer, Vec<NodeView>), Fault>> {
        self.0.inspect(name, guess)
    }

    fn renew(&self, batch: &[(Name, Renew)], kind: Kind) -> Pending<Vec<Result<Answer, Fault>>> {
        self.0.renew(batch, kind)
    }

    /// Takes no mutexes together: a test that overrides `apply` sees each request.
    fn acquire_all(&self, _: &[(Name, Acquire)]) -> Pending<Result<Option<Vec<Answer>>, Fault>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        self.0.link().names(from)
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        self.0.attach(session, inbox)
    }

    fn detach(&self, session: SessionId) -> Pending<Result<(), Fault>> {
        self.0.link().detach(session)
    }

    fn check_read(&self) -> Progress {
        self.0.link().check_read()
    }

    fn run_id(&self) -> &str {
        self.0.link().run_id()
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        self.0.link().ping()
    }

    fn idle(&self) -> Pending<()> {
        self.0.link().idle()
    }

    fn check_driven(&self) -> Progress {
        self.0.link().check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.0.link().has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn close(&self) {
        self.0.close();
    }
}

/// A world that forwards its clocks, sleeps and tasks to [`Real`] by default.
#[expect(missing_docs, reason = "the methods are those of `World`")]
pub trait ForwardWorld: Send + Sync + 'static {
    fn now_us(&self) -> u64 {
        Real.now_us()
    }

    fn wall_us(&self) -> u64 {
        Real.wall_us()
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        Real.sleep(duration)
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        Real.spawn(task)
    }

    fn spawn_session(&self, session: Pending<()>) -> io::Result<()> {
        Real.spawn_session(session)
    }
}

impl<T: ForwardWorld> World for Forward<T> {
    fn now_us(&self) -> u64 {
        self.0.now_us()
    }

    fn wall_us(&self) -> u64 {
        self.0.wall_us()
    }

    fn random(&self, bytes: &mut [u8]) {
        Real.random(bytes);
    }

    fn host(&self) -> String {
        Real.host()
    }

    fn process(&self) -> u32 {
        Real.process()
    }

    fn sleep(&self, duration: Duration) -> Pending<()> {
        self.0.sleep(duration)
    }

    fn connect(&self, to: &Address) -> Pending<io::Result<Box<dyn Socket>>> {
        Real.connect(to)
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        self.0.spawn(task)
    }

    fn spawn_session(&self, session: Pending<()>) -> io::Result<()> {
        self.0.spawn_session(session)
    }
}
