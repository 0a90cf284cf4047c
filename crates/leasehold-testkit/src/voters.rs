//! Nodes of a quorum in this process, on top of the specification itself. A test controls them directly: they die,
//! pause, forget, lose replies and have clocks of their own.

mod chair;

use std::collections::HashMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::seam::node::{Candidate, Inbox, NoVote, Node, NodeLink, NodeMessage};
use leasehold::seam::{Fault, Pending, Progress, QuorumStore, Store, World, error};
use leasehold::{Error, ErrorKind};
use leasehold_spec::node::{Bell, Charter, Marker, Record, Renewal, Request, Vote, begin, enter, vote};
use leasehold_spec::{Env, Name, SessionId};
use tokio::sync::{mpsc, watch};

use self::chair::Chair;

/// Several nodes.
pub struct Voters {
    /// Each of them.
    pub nodes: Vec<Arc<Voter>>,
    world: Arc<dyn World>,
    max_lease_ms: u64,
}

impl Voters {
    /// Creates this many nodes. None of them is in quarantine.
    #[must_use]
    pub fn new(count: usize, max_lease_ms: u64, world: Arc<dyn World>) -> Self {
        let nodes = (0..count).map(|number| Arc::new(Voter::new(number, Arc::clone(&world)))).collect();
        let voters = Self { nodes, world, max_lease_ms };
        let charter = Charter { nodes: count, max_lease_ms };
        voters.nodes.iter().for_each(|node| node.begin_now(charter));
        voters
    }

    /// Returns a store for a new client.
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(QuorumStore::new(self.seats(), self.max_lease_ms, Arc::clone(&self.world)))
    }

    /// Returns the nodes in the form that a client uses, for a test that puts something in between.
    #[must_use]
    pub fn seats(&self) -> Vec<Arc<dyn Node>> {
        self.nodes.iter().map(|node| Arc::new(Seat(Arc::clone(node))) as Arc<dyn Node>).collect()
    }
}

/// The behavior of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// It replies.
    Answers,
    /// It carries out requests, and the replies are lost.
    Mute,
    /// It is paused: requests are carried out when it resumes.
    Stopped,
    /// No connection is possible.
    Dead,
}

/// One node.
pub struct Voter {
    at: String,
    world: Arc<dyn World>,
    shelf: Mutex<Shelf>,
    mood: watch::Sender<Mood>,
    /// The number of requests for a vote.
    asked: AtomicU64,
}

/// The way to an inbox, in order: messages are delivered on the runtime that attached the inbox.
type InboxSender = mpsc::UnboundedSender<(Name, Bell)>;

struct Shelf {
    records: HashMap<Name, Record>,
    inboxes: HashMap<SessionId, (u64, InboxSender)>,
    marker: Option<Marker>,
    runs: u64,
    links: u64,
    ahead_us: i64,
}

impl Voter {
    fn new(number: usize, world: Arc<dyn World>) -> Self {
        let shelf =
            Shelf { records: HashMap::new(), inboxes: HashMap::new(), marker: None, runs: 0, links: 0, ahead_us: 0 };
        Self {
            at: format!("node-{number}:6379"),
            world,
            shelf: Mutex::new(shelf),
            mood: watch::Sender::new(Mood::Answers),
            asked: AtomicU64::new(0),
        }
    }

    /// Changes the behavior from now on. A node that dies loses its connections, and nothing else.
    pub fn be(&self, mood: Mood) {
        self.mood.send_replace(mood);
        if mood == Mood::Dead {
            self.drop_connections();
        }
    }

    /// Restarts the node without its state. It then replies.
    pub fn restart_empty(&self) {
        self.restart();
        let mut shelf = self.shelf();
        shelf.records.clear();
        shelf.marker = None;
    }

    /// Restarts the node with its state. It then replies.
    pub fn restart(&self) {
        self.be(Mood::Dead);
        self.shelf().runs += 1;
        self.be(Mood::Answers);
    }

    /// Deletes the state of the node; its connections stay open.
    pub fn flush(&self) {
        let mut shelf = self.shelf();
        shelf.records.clear();
        shelf.marker = None;
    }

    /// Ends the quarantine of the node.
    pub fn begin_now(&self, charter: Charter) {
        let mut shelf = self.shelf();
        let run = self.run(&shelf);
        shelf.marker = Some(begin(charter, &run, true));
    }

    /// Shifts the clock of the node.
    pub fn set_clock(&self, by_us: i64) {
        self.shelf().ahead_us += by_us;
    }

    /// Returns the node's record of a name.
    #[must_use]
    pub fn record(&self, name: &str) -> Record {
        let name = Name::new(name).expect("a name");
        self.shelf().records.get(&name).cloned().unwrap_or_default()
    }

    /// Carries out a request of a client that no store knows, and returns the vote.
    ///
    /// # Panics
    /// When the node abstains.
    pub fn ask(&self, name: &str, request: &Request) -> Vote {
        let marker = self.shelf().marker.clone().expect("a client has connected to the node");
        self.carry_out(&Name::new(name).expect("a name"), request, &marker).expect("it votes")
    }

    /// Returns its marker, if it has one.
    #[must_use]
    pub fn marker(&self) -> Option<Marker> {
        self.shelf().marker.clone()
    }

    /// Returns the number of requests for a vote.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns its clock.
    #[must_use]
    pub fn clock_us(&self) -> u64 {
        self.now_us(&self.shelf())
    }

    fn drop_connections(&self) {
        self.shelf().inboxes.clear();
    }

    fn run(&self, shelf: &Shelf) -> String {
        format!("{} run {}", self.at, shelf.runs)
    }

    fn now_us(&self, shelf: &Shelf) -> u64 {
        self.world.wall_us().saturating_add_signed(shelf.ahead_us)
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn carry_out(&self, name: &Name, request: &Request, seen: &Marker) -> Result<Vote, NoVote> {
        let mut shelf = self.shelf();
        let now_us = self.now_us(&shelf);
        if matches!(request, Request::Ask(_)) {
            self.asked.fetch_add(1, Ordering::Relaxed);
        }
        if matches!(request, Request::Ask(_) | Request::Renew(_))
            && let Some(abstention) = seen.abstains(shelf.marker.as_ref(), now_us)
        {
            return Err(NoVote::Abstains(abstention));
        }
        let Shelf { records, inboxes, .. } = &mut *shelf;
        let env = Env { wall_us: now_us, lease_us: now_us, attached: &|session| inboxes.contains_key(&session) };
        let (reply, bells) = vote(records.entry(name.clone()).or_default(), &env, request);
        for bell in bells {
            // Without an inbox the message is lost.
            if let Some((_, sender)) = inboxes.get(&bell.to) {
                let _lost = sender.send((name.clone(), bell));
            }
        }
        Ok(reply)
    }
}

fn gone() -> Error {
    error(ErrorKind::Unreachable, "the connection broke")
}

struct Seat(Arc<Voter>);

impl Node for Seat {
    fn at(&self) -> &str {
        &self.0.at
    }

    fn open(&self, charter: Charter) -> Pending<Result<Arc<dyn NodeLink>, Error>> {
        let voter = Arc::clone(&self.0);
        Box::pin(async move {
            wait_for_reply(&voter).await.map_err(|()| error(ErrorKind::Unreachable, "connection refused"))?;
            let mut shelf = voter.shelf();
            let (run, now_us) = (voter.run(&shelf), voter.now_us(&shelf));
            let marker = enter(shelf.marker.as_ref(), charter, &run, true, now_us)
                .map_err(|_| error(ErrorKind::Invalid, "another charter"))?;
            shelf.marker = Some(marker.clone());
            shelf.links += 1;
            let number = shelf.links;
            drop(shelf);
            let is_closed = AtomicBool::new(false);
            Ok(Arc::new(VoterLink { voter, marker, run, number, is_closed, attached: Mutex::default() })
                as Arc<dyn NodeLink>)
        })
    }

    fn prepare(&self, charter: Charter) -> Pending<Result<Arc<dyn Candidate>, Error>> {
        let voter = Arc::clone(&self.0);
        Box::pin(async move {
            wait_for_reply(&voter).await.map_err(|()| error(ErrorKind::Unreachable, "connection refused"))?;
            Ok(Arc::new(Chair::of(voter, charter)) as Arc<dyn Candidate>)
        })
    }
}

/// Waits until the node replies. Returns an error if it is dead.
async fn wait_for_reply(voter: &Voter) -> Result<(), ()> {
    let mut mood = voter.mood.subscribe();
    let is_decided = |mood: &Mood| matches!(mood, Mood::Answers | Mood::Mute | Mood::Dead);
    let mood = *mood.wait_for(is_decided).await.map_err(|_| ())?;
    if mood == Mood::Dead { Err(()) } else { Ok(()) }
}

struct VoterLink {
    voter: Arc<Voter>,
    marker: Marker,
    run: String,
    number: u64,
    is_closed: AtomicBool,
    attached: Mutex<Option<SessionId>>,
}

impl VoterLink {
    /// Runs the work at once if the node replies, so that requests are carried out in the order in which they are
    /// polled.
    fn run_on_node<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Voter, &Marker) -> T + Send + 'static,
    ) -> Pending<Result<T, Error>> {
        let (voter, marker, run, is_closed) =
            (Arc::clone(&self.voter), self.marker.clone(), self.run.clone(), self.is_closed());
        Box::pin(async move {
            let broke =
                |voter: &Voter| is_closed || *voter.mood.borrow() == Mood::Dead || voter.run(&voter.shelf()) != run;
            if broke(&voter) || wait_for_reply(&voter).await.is_err() || broke(&voter) {
                return Err(gone());
            }
            let reply = work(&voter, &marker);
            if *voter.mood.borrow() == Mood::Mute {
                pending::<()>().await;
            }
            Ok(reply)
        })
    }
}

impl NodeLink for VoterLink {
    fn ask(&self, name: &Name, request: &Request) -> Pending<Result<Vote, NoVote>> {
        let (name, request) = (name.clone(), request.clone());
        let asked = self.run_on_node(move |voter, marker| voter.carry_out(&name, &request, marker));
        Box::pin(async move { asked.await.unwrap_or_else(|error| Err(NoVote::Fault(Fault::Gone(error)))) })
    }

    fn renew(&self, batch: &[(Name, Renewal)]) -> Pending<Vec<Result<Vote, NoVote>>> {
        let (batch, count) = (batch.to_vec(), batch.len());
        let asked = self.run_on_node(move |voter, marker| {
            let each = batch.into_iter();
            each.map(|(name, renewal)| voter.carry_out(&name, &Request::Renew(renewal), marker)).collect()
        });
        Box::pin(async move {
            let broke = || (0..count).map(|_| Err(NoVote::Fault(Fault::Gone(gone())))).collect();
            asked.await.unwrap_or_else(|_| broke())
        })
    }

    fn names(&self, _from: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        let asked = self.run_on_node(|voter, _| voter.shelf().records.keys().cloned().collect::<Vec<_>>());
        Box::pin(async move { asked.await.map(|names| (names, 0)).map_err(Fault::Gone) })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        *self.attached.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        let number = self.number;
        let asked = self.run_on_node(move |voter, _| {
            let (sender, mut bells) = mpsc::unbounded_channel();
            voter.shelf().inboxes.insert(session, (number, sender));
            tokio::spawn(async move {
                while let Some((name, bell)) = bells.recv().await {
                    inbox(NodeMessage::Bell(name, bell));
                }
                inbox(NodeMessage::Detached);
            });
        });
        Box::pin(async move { asked.await.map_err(Fault::Gone) })
    }

    fn quarantine_until_us(&self) -> u64 {
        self.marker.rests_until_us
    }

    fn was_used(&self) -> bool {
        self.marker.was_used
    }

    fn run_id(&self) -> &str {
        &self.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let asked = self.run_on_node(|voter, _| voter.clock_us());
        Box::pin(async move { asked.await.map_err(Fault::Gone) })
    }

    fn check_driven(&self) -> Progress {
        Progress::Moving
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let Some(session) = *self.attached.lock().unwrap_or_else(PoisonError::into_inner) else { return };
        let mut shelf = self.voter.shelf();
        if shelf.inboxes.get(&session).is_some_and(|(number, _)| *number == self.number) {
            shelf.inboxes.remove(&session);
        }
    }
}

impl Drop for VoterLink {
    fn drop(&mut self) {
        self.close();
    }
}
