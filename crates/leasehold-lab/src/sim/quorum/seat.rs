//! A connection to a node as its client has it: the two traits of `store/quorum/node.rs`, and where its requests go.

use std::sync::{Arc, Mutex};

use leasehold::seam::node::{Candidate, Inbox, NoVote, Node, NodeLink, NodeMessage};
use leasehold::seam::{Fault, Pending, Progress, error};
use leasehold::{Error, ErrorKind};
use leasehold_spec::node::{Abstention, Bell, Charter, Marker, Renewal, Request, Vote};
use leasehold_spec::{Name, SessionId};

use super::super::conns::{self, Sending};
use super::super::exec::{Pid, lock};
use super::super::stage::Sim;
use super::super::wire::{Way, Wire};
use super::net::{self, Net};
use super::voter::{Query, Reply};

/// A node, as one process reaches it.
pub(in super::super) struct SimNode {
    sim: Arc<Sim>,
    pid: Pid,
    node: usize,
    at: String,
}

impl SimNode {
    /// Returns all nodes.
    pub(in super::super) fn all(sim: &Arc<Sim>, pid: Pid) -> Vec<Arc<dyn Node>> {
        let names: Vec<String> = lock(&sim.votes).nodes.iter().map(|voter| voter.at.clone()).collect();
        let seat = |(node, at)| Arc::new(Self { sim: Arc::clone(sim), pid, node, at }) as Arc<dyn Node>;
        names.into_iter().enumerate().map(seat).collect()
    }
}

impl Node for SimNode {
    fn at(&self) -> &str {
        &self.at
    }

    fn open(&self, charter: Charter) -> Pending<Result<Arc<dyn NodeLink>, Error>> {
        let (sim, pid, node) = (Arc::clone(&self.sim), self.pid, self.node);
        Box::pin(async move {
            let (id, run, wire) = net::open(&sim, pid, node).await?;
            let inbox = Arc::new(Mutex::new(None));
            let route = Route { sim: Arc::clone(&sim), node, id, inbox: Arc::clone(&inbox) };
            let driver = Box::pin(wire.drive(route));
            // Owns the connection from here on: dropping it closes the connection.
            let mut link = SimNodeLink { sim: Arc::clone(&sim), run, wire, inbox, marker: None };
            let spawned = sim.exec.spawn_beside(pid, "a connection", driver);
            spawned.map_err(|_| error(ErrorKind::Unreachable, "there is no runtime here"))?;
            match link.exchange(Query::Greet(charter)).await {
                Ok(Reply::Greeted(marker)) => link.marker = Some(Arc::new(marker)),
                Ok(_) => return Err(error(ErrorKind::Invalid, "a quorum with another charter")),
                Err(_) => return Err(error(ErrorKind::Unreachable, "the connection is gone")),
            }
            Ok(Arc::new(link) as Arc<dyn NodeLink>)
        })
    }

    /// Every node of a simulation was initialized before the first client starts.
    fn prepare(&self, _: Charter) -> Pending<Result<Arc<dyn Candidate>, Error>> {
        let begun = error(ErrorKind::Unsupported, "every node is initialized");
        Box::pin(std::future::ready(Err(begun)))
    }
}

/// The route of a connection: to a node, by the network.
pub(in super::super) struct Route {
    sim: Arc<Sim>,
    node: usize,
    id: u64,
    inbox: Arc<Mutex<Option<Inbox>>>,
}

impl Way for Route {
    type Ask = Query;
    type Reply = Reply;
    type Push = (Name, Bell);

    fn send(&self, number: u64, ask: Query) {
        conns::send::<Net>(&self.sim, (self.node, self.id), Sending::Up { reply: Some(number), ask });
    }

    fn answered(&self, _: &Reply) {}

    fn pushed(&self, (name, bell): (Name, Bell)) {
        let inbox = lock(&self.inbox).clone();
        inbox.into_iter().for_each(|inbox| inbox(NodeMessage::Bell(name.clone(), bell.clone())));
    }

    fn ended(&self) {
        conns::client_closes::<Net>(&self.sim, (self.node, self.id));
        let inbox = lock(&self.inbox).take();
        inbox.into_iter().for_each(|inbox| inbox(NodeMessage::Detached));
    }
}

struct SimNodeLink {
    sim: Arc<Sim>,
    run: String,
    wire: Arc<Wire<Route>>,
    inbox: Arc<Mutex<Option<Inbox>>>,
    /// `None` until the node was greeted.
    marker: Option<Arc<Marker>>,
}

impl SimNodeLink {
    fn exchange(&self, ask: Query) -> impl Future<Output = Result<Reply, Fault>> + Send + use<> {
        let said = self.wire.exchange(ask);
        async move {
            match said.await {
                Some(Reply::NoMemory) => {
                    Err(Fault::NoMemory(error(ErrorKind::Store, "the memory of the store is full")))
                }
                Some(said) => Ok(said),
                None => Err(gone()),
            }
        }
    }

    fn seen(&self) -> Arc<Marker> {
        // No link is used before its node was greeted.
        self.marker.clone().unwrap_or_else(|| unreachable!("a node is greeted before its link is used"))
    }
}

fn vote(said: Result<Vote, Abstention>) -> Result<Vote, NoVote> {
    said.map_err(NoVote::Abstains)
}

impl NodeLink for SimNodeLink {
    fn ask(&self, name: &Name, request: &Request) -> Pending<Result<Vote, NoVote>> {
        let mut request = request.clone();
        if let Request::Ask(ask) = &mut request {
            // The range is small in some plans, so that sessions use up their reserved tokens.
            ask.range = ask.range.min(self.sim.plan.range);
        }
        let said = self.exchange(Query::One(name.clone(), request, self.seen()));
        Box::pin(async move {
            match said.await {
                Ok(Reply::Vote(said)) => vote(said),
                Ok(_) => Err(NoVote::Fault(gone())),
                Err(fault) => Err(NoVote::Fault(fault)),
            }
        })
    }

    fn renew(&self, batch: &[(Name, Renewal)]) -> Pending<Vec<Result<Vote, NoVote>>> {
        let (said, count) = (self.exchange(Query::Batch(batch.to_vec(), self.seen())), batch.len());
        Box::pin(async move {
            match said.await {
                Ok(Reply::Votes(votes)) => votes.into_iter().map(vote).collect(),
                _ => (0..count).map(|_| Err(NoVote::Fault(gone()))).collect(),
            }
        })
    }

    fn names(&self, _: u64) -> Pending<Result<(Vec<Name>, u64), Fault>> {
        let said = self.exchange(Query::Names);
        Box::pin(async move {
            match said.await? {
                Reply::Names(names) => Ok((names, 0)),
                _ => Err(gone()),
            }
        })
    }

    fn attach(&self, session: SessionId, inbox: Inbox) -> Pending<Result<(), Fault>> {
        let (ours, said) = (Arc::clone(&self.inbox), self.exchange(Query::Attach(session)));
        Box::pin(async move {
            // Set before the request is sent: a message may come before the answer.
            *lock(&ours) = Some(inbox);
            said.await.map(drop)
        })
    }

    fn quarantine_until_us(&self) -> u64 {
        self.seen().rests_until_us
    }

    fn was_used(&self) -> bool {
        self.seen().was_used
    }

    fn run_id(&self) -> &str {
        &self.run
    }

    fn ping(&self) -> Pending<Result<u64, Fault>> {
        let said = self.exchange(Query::Time);
        Box::pin(async move {
            match said.await? {
                Reply::Time(us) => Ok(us),
                _ => Err(gone()),
            }
        })
    }

    fn check_driven(&self) -> Progress {
        self.wire.check_driven()
    }

    fn has_unsent(&self) -> bool {
        self.wire.has_unsent()
    }

    fn is_closed(&self) -> bool {
        self.wire.is_closed()
    }

    fn close(&self) {
        self.wire.close();
    }
}

impl Drop for SimNodeLink {
    fn drop(&mut self) {
        self.close();
    }
}

fn gone() -> Fault {
    Fault::Gone(error(ErrorKind::Unreachable, "the connection is gone"))
}
