//! Between a client and its nodes: links that are silent where a test wants it, and counters of links. Also a world in
//! which sleeps end early.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::seam::node::{Begin, Candidate, Inbox, NoVote, Node, NodeLink, NodeMessage};
use leasehold::seam::{Fault, Pending, Progress, QuorumStore, Real, Store, World, error};
use leasehold::{Error, ErrorKind};
use leasehold_spec::node::{Bell, Charter, Renewal, Request, Vote};
use leasehold_spec::{Inspection, Name, SessionId, Token};
use leasehold_testkit::forward::{Forward, ForwardWorld};
use leasehold_testkit::voters::Voters;
use tokio::sync::watch;

use crate::played::MAX_LEASE_MS;

/// The requests that a link never answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silent {
    Never,
    Ping,
    Attach,
    /// Its list of names is endless.
    Names,
}

/// The requests about one name that wait to be sent.
#[derive(Clone, Copy)]
enum Delay {
    None,
    Votes,
    All,
    /// Those that wait already, and no others.
    Earlier,
}

impl Delay {
    fn delays(self, request: &Request) -> bool {
        match self {
            Self::None | Self::Earlier => false,
            Self::Votes => matches!(request, Request::Ask(_) | Request::Renew(_)),
            Self::All => true,
        }
    }
}

/// Returns an answer in place of the node's answer. `None`: the node answers.
type Says = dyn Fn(&Request) -> Option<NoVote> + Send + Sync;

/// A node with silent links.
pub(crate) struct Shy {
    node: Arc<dyn Node>,
    silent: Mutex<Silent>,
    says: Mutex<Arc<Says>>,
    delay: watch::Sender<Delay>,
    /// While this says `false`, nobody reads the answers to later requests.
    withheld: Mutex<Option<watch::Receiver<bool>>>,
    inbox: Mutex<Option<Inbox>>,
    loses: AtomicBool,
    breaks: AtomicBool,
    tried: AtomicUsize,
    opened: AtomicUsize,
    closed: AtomicUsize,
}

impl Shy {
    /// Wraps each of these nodes, and returns a store of all of them.
    pub(crate) fn each(voters: &Voters, world: Arc<dyn World>) -> (Vec<Arc<Self>>, Arc<dyn Store>) {
        let (each, store) = Self::quorum(voters, world);
        (each, Arc::new(store))
    }

    /// The same, with the methods of a quorum.
    pub(crate) fn quorum(voters: &Voters, world: Arc<dyn World>) -> (Vec<Arc<Self>>, QuorumStore) {
        let shy = |node| {
            let [tried, opened, closed] = [const { AtomicUsize::new(0) }; 3];
            let says: Arc<Says> = Arc::new(|_| None);
            let (silent, says, delay) = (Mutex::new(Silent::Never), Mutex::new(says), watch::Sender::new(Delay::None));
            let (breaks, withheld, inbox) = (AtomicBool::new(false), Mutex::default(), Mutex::default());
            let loses = AtomicBool::new(false);
            Arc::new(Self { node, silent, says, delay, withheld, inbox, loses, breaks, tried, opened, closed })
        };
        let each: Vec<Arc<Self>> = voters.seats().into_iter().map(shy).collect();
        let nodes = each.iter().map(|shy| Arc::new(Seat(Arc::clone(shy))) as Arc<dyn Node>).collect();
        (each, QuorumStore::new(nodes, MAX_LEASE_MS, world))
    }

    /// Makes the links silent that are opened from now on.
    pub(crate) fn be(&self, silent: Silent) {
        *self.silent.lock().unwrap() = silent;
    }

    /// Sets the answer to later requests about one name, and to renewals if it answers each renewal of a batch.
    pub(crate) fn says(&self, says: impl Fn(&Request) -> Option<NoVote> + Send + Sync + 'static) {
        *self.says.lock().unwrap() = Arc::new(says);
    }

    /// From now on, requests about one name wait to be sent. A request that is dropped meanwhile is not sent, as with a
    /// client that writes later.
    pub(crate) fn delay_requests(&self) {
        self.delay.send_replace(Delay::All);
    }

    /// The same for requests for a vote, and for renewals.
    pub(crate) fn delay_vote_requests(&self) {
        self.delay.send_replace(Delay::Votes);
    }

    /// Sends the requests that wait, and later ones at once.
    pub(crate) fn send_delayed(&self) {
        self.delay.send_replace(Delay::None);
    }

    /// From now on, replaces the reply to each request that had to wait by the fault of a broken connection.
    pub(crate) fn lose_delayed_replies(&self) {
        self.loses.store(true, Ordering::SeqCst);
    }

    /// Sends new requests at once. Those that wait to be sent go on waiting.
    pub(crate) fn delay_no_new_requests(&self) {
        self.delay.send_replace(Delay::Earlier);
    }

    /// Delivers a message of the node to the session.
    pub(crate) fn ring(&self, name: &str, bell: Bell) {
        let inbox = self.inbox.lock().unwrap().clone().expect("the session has attached its inbox");
        inbox(NodeMessage::Bell(Name::new(name).unwrap(), bell));
    }

    /// Returns whether a request waits to be sent.
    pub(crate) fn has_delayed(&self) -> bool {
        self.delay.receiver_count() > 0
    }

    /// Carries later requests out, and leaves their answers unread until `until` says `true`, as if the caller's runtime
    /// stood still. `None`: answers are read at once.
    pub(crate) fn withhold(&self, until: Option<watch::Receiver<bool>>) {
        *self.withheld.lock().unwrap() = until;
    }

    /// While this is on, the links are broken, without any message about it.
    pub(crate) fn break_links(&self, breaks: bool) {
        self.breaks.store(breaks, Ordering::SeqCst);
    }

    /// Returns how often a client tried to open a link.
    pub(crate) fn tried(&self) -> usize {
        self.tried.load(Ordering::SeqCst)
    }

    /// Returns how many links were opened.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    /// Returns how many links were closed.
    pub(crate) fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }
}

struct Seat(Arc<Shy>);

impl Node for Seat {
    fn at(&self) -> &str {
        self.0.node.at()
    }

    fn open(&self, charter: Charter) -> Pending<Result<Arc<dyn NodeLink>, Error>> {
        let shy = Arc::clone(&self.0);
        Box::pin(async move {
            shy.tried.fetch_add(1, Ordering::SeqCst);
            let link = shy.node.open(charter).await?;
            let silent = *shy.silent.lock().unwrap();
            shy.opened.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::new(ShyLink { shy, link, silent, is_closed: AtomicBool::new(false) }) as Arc<dyn NodeLink>)
        })
    }

    fn prepare(&self, charter: Charter) -> Pending<Result<Arc<dyn Candidate>, Error>> {
        let shy = Arc::clone(&self.0);
        Box::pin(async move {
            let candidate = shy.node.prepare(charter).await?;
            let silent = *shy.silent.lock().unwrap();
            Ok(Arc::new(ShyCandidate { candidate, silent }) as Arc<dyn Candidate>)
        })
    }
}

struct ShyCandidate {
    candidate: Arc<dyn Candidate>,
    silent: Silent,
}

impl Candidate for ShyCandidate {
    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        match self.silent {
            Silent::Names => Box::pin(async move {
                tokio::task::yield_now().await;
                Ok((Vec::new(), from + 1))
            }),
            Silent::Ping => Box::pin(pending()),
            Silent::Never | Silent::Attach => self.candidate.names(from),
        }
    }

    fn inspect(&self, name: &Name) -> Pending<Result<(Inspection, Token), Fault>> {
        self.candidate.inspect(name)
    }

    fn time(&self) -> Pending<Result<u64, Fault>> {
        self.candidate.time()
    }

    fn begin(&self, begin: Begin) -> Pending<Result<(), Error>> {
        self.candidate.begin(begin)
    }
}

struct ShyLink {
    shy: Arc<Shy>,
    link: Arc<dyn NodeLink>,
    silent: Silent,
    is_closed: AtomicBool,
}

impl ShyLink {
    /// If the request has to wait, returns a future that ends when it is sent.
    fn delay(&self, request: &Request) -> Option<Pending<()>> {
        if !self.shy.delay.borrow().delays(request) {
            return None;
        }
        let (request, mut delay) = (request.clone(), self.shy.delay.subscribe());
        Some(Box::pin(async move {
            let sends = |delay: &Delay| !delay.delays(&request) && !matches!(delay, Delay::Earlier);
            delay.wait_for(sends).await.unwrap();
        }))
    }
}

/// Returns the fault of a lost reply. The node has carried the request out.
fn lost() -> NoVote {
    NoVote::Fault(Fault::Gone(error(ErrorKind::Unreachable, "the connection broke")))
}

impl NodeLink for ShyLink {
    fn ask(&self, name: &Name, request: &Request) -> Pending<Result<Vote, NoVote>> {
        let says = Arc::clone(&self.shy.says.lock().unwrap());
        if let Some(no_vote) = says(request) {
            return Box::pin(std::future::ready(Err(no_vote)));
        }
        match self.delay(request) {
            Some(delayed) => {
                let (shy, link, name, request) =
                    (Arc::clone(&self.shy), Arc::clone(&self.link), name.clone(), request.clone());
                Box::pin(async move {
                    delayed.await;
                    let said = link.ask(&name, &request).await;
                    if shy.loses.load(Ordering::SeqCst) { Err(lost()) } else { said }
                })
            }
            None => {
                let (asked, withheld) = (self.link.ask(name, request), self.shy.withheld.lock().unwrap().clone());
                Box::pin(async move {
                    let said = asked.await;
                    if let Some(mut withheld) = withheld {
                        let _heard = withheld.wait_for(|heard| *heard).await;
                    }
                    said
                })
            }
        }
    }

    fn renew(&self, batch: &[(Name, Renewal)]) -> Pending<Vec<Result<Vote, NoVote>>> {
        let says = Arc::clone(&self.shy.says.lock().unwrap());
        let said: Vec<_> = batch.iter().filter_map(|(_, renewal)| says(&Request::Renew(renewal.clone()))).collect();
        if said.len() == batch.len() {
            return Box::pin(std::future::ready(said.into_iter().map(Err).collect()));
        }
        let delayed = batch.first().and_then(|(_, renewal)| self.delay(&Request::Renew(renewal.clone())));
        let Some(delayed) = delayed else { return self.link.renew(batch) };
        let (shy, link, batch) = (Arc::clone(&self.shy), Arc::clone(&self.link), batch.to_vec());
        Box::pin(async move {
            delayed.await;
            let said = link.renew(&batch).await;
            if shy.loses.load(Ordering::SeqCst) { batch.iter().map(|_| Err(lost())).collect() } else { said }
        })
    }

    fn names(&self, from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        self.link.names(from)
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        *self.shy.inbox.lock().unwrap() = Some(Arc::clone(&inbox));
        match self.silent {
            Silent::Attach => Box::pin(pending()),
            _ => self.link.attach(session, inbox),
        }
    }

    fn quarantine_until_us(&self) -> u64 {
        self.link.quarantine_until_us()
    }

    fn was_used(&self) -> bool {
        self.link.was_used()
    }

    fn run_id(&self) -> &str {
        self.link.run_id()
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        match self.silent {
            Silent::Ping => Box::pin(pending()),
            _ => self.link.ping(),
        }
    }

    fn check_driven(&self) -> Progress {
        self.link.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.link.has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.shy.breaks.load(Ordering::SeqCst) || self.link.is_closed()
    }

    fn close(&self) {
        if !self.is_closed.swap(true, Ordering::SeqCst) {
            self.shy.closed.fetch_add(1, Ordering::SeqCst);
        }
        self.link.close();
    }
}

/// The factor by which sleeps are shorter or longer.
const EARLIER: u32 = 50;

/// The real world with shorter sleeps, so that a bound of seconds takes a fraction of a second. Or with longer sleeps, so
/// that no bound is reached.
pub(crate) struct Hasty(Tasks, fn(Duration) -> Duration);

/// The number of running tasks that were spawned in a world.
pub(crate) type Tasks = Arc<AtomicUsize>;

impl Hasty {
    pub(crate) fn world() -> Arc<dyn World> {
        Self::counting().0
    }

    pub(crate) fn counting() -> (Arc<dyn World>, Tasks) {
        let tasks = Tasks::default();
        (Arc::new(Forward(Self(Arc::clone(&tasks), |duration| duration / EARLIER))), tasks)
    }

    /// Returns a world with longer sleeps.
    pub(crate) fn late() -> Arc<dyn World> {
        Arc::new(Forward(Self(Tasks::default(), |duration| duration * EARLIER)))
    }
}

struct Task(Tasks);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ForwardWorld for Hasty {
    fn sleep(&self, duration: Duration) -> Pending<()> {
        Real.sleep(self.1(duration))
    }

    fn spawn(&self, task: Pending<()>) -> Result<(), Pending<()>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let counted = Task(Arc::clone(&self.0));
        Real.spawn(Box::pin(async move {
            let _counted = counted;
            task.await;
        }))
    }
}
