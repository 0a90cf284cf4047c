//! A quorum of independent nodes: Redlock, finished.
//!
//! A lock on one Redis is lost with it, or with a failover that forgets it. Here the lock is what a majority of several
//! servers says, which know nothing of each other: any minority of them may die, and nothing is lost.
//!
//! What each node does is [`leasehold_spec::node`], which also tells why tokens come with the request. This folder is the
//! client's side: asking all of them at once and counting.
//!
//! | | |
//! |---|---|
//! | `link.rs` | what a session takes for a store |
//! | `hearing.rs` | one question to all nodes, and when enough have answered |
//! | `round.rs` | counting votes: pure |
//! | `asking.rs` | rounds for a lease |
//! | `turns.rs` | what starts the next round of an attempt that waits |
//! | `attempts.rs` | how many rounds grants took: for benchmarks |
//! | `returning.rs` | what is left of rounds that were lost |
//! | `keeping.rs` | renewals, and nodes that are filled |
//! | `ending.rs` | giving back, and what operators ask |
//! | `beginning.rs` | `quorum begin`: asks all nodes for holders and waiters, then writes their markers |
//! | `places.rs`, `keeper.rs` | who is connected; connections that come and go |
//! | `member.rs` | what is known of a node |
//! | `names.rs` | what is known of names: tokens, holders, waiters |
//! | `timers.rs`, `fan.rs` | deadlines; many requests at once |
//! | `under_way.rs` | work that no caller waits for |
//! | `node.rs` | what a node is: of its server only `store/redis/node/` knows |
//! | `url.rs` | what a `quorum:` URL says |
//!
//! None of them knows what a session is, beyond its id and its inbox.

mod asking;
mod attempts;
mod beginning;
mod ending;
mod fan;
mod hearing;
mod keeper;
mod keeping;
mod link;
mod member;
mod names;
pub mod node;
mod places;
mod returning;
mod round;
mod timers;
mod turns;
mod under_way;
#[cfg(feature = "redis")]
pub(crate) mod url;

use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_spec::limits::{NOT_AFTER_MAX_US, TOKEN_END};
use leasehold_spec::node::{Abstention, Charter};
use leasehold_spec::{Name, Token};
use tokio::task::unconstrained;

pub use self::attempts::attempts;
use self::fan::Fan;
use self::link::{GRACE, QuorumLink};
use self::member::{Member, Standing};
use self::names::{Names, Nodes};
use self::node::Node;
use self::places::Inner;
use self::timers::Timers;
use self::under_way::{LeftBehind, UnderWay, apart};
use crate::error::{Error, ErrorKind};
use crate::store::{Inbox, Link, Message, Store, StoreProfile};
use crate::world::{Pending, World};

/// What a node has for its answer beside the way there.
const ANSWER_US: u64 = 50_000;
/// After this time the session's thread goes on with what a caller's runtime has not finished.
const TAKEN_OVER_US: u64 = 250_000;

/// A quorum, as one client has it.
pub struct QuorumStore {
    shared: Arc<Shared>,
}

/// What the links of one client share.
struct Shared {
    world: Arc<dyn World>,
    charter: Charter,
    members: Vec<Member>,
    timers: Arc<Timers>,
    names: Mutex<Names>,
    /// The inbox of the session, if one is attached: what any link hears of a node's clock is said there.
    home: Mutex<Option<Inbox>>,
    /// The session's own link, which its thread drives.
    home_link: Mutex<Weak<Inner>>,
    under_way: Arc<UnderWay>,
    /// How many links there were.
    links: AtomicU64,
}

impl QuorumStore {
    /// A quorum of these nodes, 16 at most. No I/O.
    #[must_use]
    pub fn new(nodes: Vec<Arc<dyn Node>>, max_lease_ms: u64, world: Arc<dyn World>) -> Self {
        debug_assert!(nodes.len() <= Nodes::MOST, "no more can be told apart");
        let charter = Charter { nodes: nodes.len(), max_lease_ms };
        let members = nodes.into_iter().map(Member::new).collect();
        Self {
            shared: Arc::new(Shared {
                world,
                charter,
                members,
                timers: Arc::default(),
                names: Mutex::default(),
                home: Mutex::default(),
                home_link: Mutex::default(),
                under_way: Arc::default(),
                links: AtomicU64::default(),
            }),
        }
    }
}

impl Store for QuorumStore {
    fn open(&self) -> Pending<Result<Arc<dyn Link>, Error>> {
        Box::pin(unconstrained(open(Arc::clone(&self.shared))))
    }

    fn silence(&self) -> Option<Error> {
        Some(self.shared.too_few(None))
    }

    fn life(&self) -> Option<OwnedFd> {
        None
    }

    fn profile(&self) -> StoreProfile {
        self.shared.profile()
    }
}

/// Connects all nodes at once. It is open a moment after a majority is there, or at once with all; the others go on.
async fn open(shared: Arc<Shared>) -> Result<Arc<dyn Link>, Error> {
    let inner = Inner::new(Arc::clone(&shared));
    // Owned from the first moment: dropped, it closes what was opened.
    let link = Arc::new(QuorumLink(Arc::clone(&inner)));
    let opening =
        |node| -> (usize, Pending<Result<(), Error>>) { (node, Box::pin(keeper::open(Arc::clone(&inner), node))) };
    let nodes = shared.members.len();
    let mut fan = Fan::of((0..nodes).map(opening).collect::<Vec<_>>());
    let (mut here, mut away) = (Vec::new(), Vec::new());
    let mut grace: Option<Pending<()>> = None;
    loop {
        let has_majority = here.len() > nodes / 2;
        if has_majority && grace.is_none() {
            grace = Some(shared.world.sleep(GRACE));
        }
        let enough = async {
            match &mut grace {
                Some(grace) => grace.await,
                None => std::future::pending().await,
            }
        };
        let heard = tokio::select! {
            biased;
            heard = fan.next() => heard,
            () = enough => break,
        };
        match heard {
            Some((node, Ok(()))) => here.push(node),
            Some((_, Err(error))) if error.kind() == ErrorKind::Invalid => return Err(error),
            Some((node, Err(error))) => {
                shared.members[node].stand(Standing::Away(error.to_string()));
                away.push((node, error));
            }
            None if has_majority => break,
            None => return Err(shared.cannot_open(&away)),
        }
    }
    let connected = here.into_iter().map(|node| (node, Some(Box::pin(async { Ok(()) }) as Pending<_>)));
    let failed = away.into_iter().map(|(node, _)| (node, None));
    let under_way = fan.rest().into_iter().map(|(node, opening)| (node, Some(opening)));
    for (node, opening) in connected.chain(failed).chain(under_way) {
        let keeping = Box::pin(unconstrained(keeper::keep(Arc::clone(&inner), node, opening)));
        shared.world.spawn(keeping).map_err(|_| Error::invalid("there is no async runtime: connect inside one"))?;
    }
    Ok(link)
}

impl Shared {
    /// What a node answers, if that is soon.
    fn in_time<T: 'static>(&self, node: usize, answer: Pending<Result<T, Error>>) -> Pending<Result<T, Error>> {
        let (world, at) = (Arc::clone(&self.world), self.members[node].node.at().to_owned());
        Box::pin(async move {
            tokio::select! {
                biased;
                answer = answer => answer,
                () = world.sleep(Duration::from_micros(keeper::OPEN_WITHIN_US)) => {
                    let error = keeper::unanswered();
                    Err(Error::new(error.kind(), format!("{at} {error}")))
                }
            }
        })
    }

    /// Runs what its caller does not wait for, on the caller's runtime. If there is none, if it ends before the task has,
    /// or if the task takes longer than [`TAKEN_OVER_US`], the session's thread runs the task: a request that is dropped
    /// before it is written is never sent, and a runtime that stands still gives no vote back.
    fn spawn(&self, task: Pending<()>) {
        let at_us = self.world.now_us() + TAKEN_OVER_US;
        // Without a runtime the task comes back and is dropped. Its `Drop` hands it to the session's thread.
        drop(self.world.spawn(Box::pin(LeftBehind::new(task, self.under_way.begin(), &self.timers, at_us))));
    }

    /// Has the session's thread run it.
    fn leave(&self, task: Pending<()>) {
        self.timers.leave(apart((task, self.under_way.begin())));
    }

    /// Ends when nothing of that is under way, and no later than a node has to answer: one that stands still would keep
    /// whoever closes for ever.
    async fn idle(self: Arc<Self>) {
        tokio::select! {
            biased;
            () = self.under_way.idle() => {}
            () = self.world.sleep(Duration::from_micros(self.patience_us(u64::MAX))) => {}
        }
    }

    fn tell_home(&self, message: Message) {
        let home = self.home.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(inbox) = home {
            inbox(message);
        }
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, for an attempt that may be new: what is over, and was not said to be, is forgotten first.
    fn names_at(&self, now_us: u64) -> MutexGuard<'_, Names> {
        let mut names = self.names();
        names.forget(self.charter.max_lease_ms * 1000, now_us);
        names
    }

    fn profile(&self) -> StoreProfile {
        StoreProfile {
            longest_lease_ms: Some(self.charter.max_lease_ms),
            partial_grants: true,
            burns_unused_tokens: true,
        }
    }

    /// What most nodes' clocks show: half of them are behind it, and half ahead.
    fn time_us(&self, now_us: u64) -> u64 {
        let mut times: Vec<u64> = self.members.iter().filter_map(|member| member.time_at(now_us, now_us)).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or_else(|| self.world.wall_us())
    }

    /// A token above all that is known of a name. No promise rests on it: a node that knows of a larger one says so.
    fn propose(&self, name: &Name, now_us: u64) -> Token {
        let clock = Token::new(self.time_us(now_us).min(TOKEN_END - 1)).unwrap_or(Token::NONE);
        let seen = self.names().seen(name);
        let above = Token::new(seen.get() + 1).unwrap_or(Token::HIGHEST);
        clock.max(above)
    }

    /// Takes note of a token that a node knows of.
    fn see(&self, name: &Name, token: Token, now_us: u64) {
        let time_us = self.time_us(now_us);
        self.names().see(name, token, time_us);
    }

    /// The way to a majority and back.
    fn rtt_us(&self) -> u64 {
        let mut ways: Vec<u64> = self.members.iter().map(Member::rtt_us).collect();
        ways.sort_unstable();
        ways[self.members.len() / 2]
    }

    /// How long nodes may take for an answer: far less than the lease, of which it is a part.
    fn patience_us(&self, lease_ms: u64) -> u64 {
        (ANSWER_US + self.rtt_us()).min(lease_ms.saturating_mul(100)).min(NOT_AFTER_MAX_US)
    }

    /// What to write on a request to this node that is worth nothing later. To one of whose clock nothing was heard lately
    /// it is 0, which comes late: its refusal tells the time, and the next request is good.
    fn not_after(&self, node: usize, now_us: u64, within_us: u64) -> u64 {
        self.members[node].time_at(now_us + within_us, now_us).unwrap_or(0)
    }

    /// A link leads to this run of a node. The error: another node, which is the same server.
    fn meet(&self, node: usize, run: &str) -> Result<(), usize> {
        // Two of them that come back at once look at each other one after the other.
        let _one_at_a_time = self.names();
        match (0..self.members.len()).find(|&other| other != node && self.members[other].run() == run) {
            Some(other) => Err(other),
            None => {
                self.members[node].meet(run);
                Ok(())
            }
        }
    }

    /// How many nodes vote, or have rested since they said that they do not.
    fn may_vote(&self) -> usize {
        let now_us = self.world.now_us();
        let may = |standing: Standing| match standing {
            Standing::Votes => true,
            Standing::Abstains(Abstention::Resting { .. }, _) => standing.rests_us(now_us).is_none(),
            _ => false,
        };
        self.members.iter().filter(|member| may(member.standing())).count()
    }

    /// Why there is no majority, node by node.
    fn too_few(&self, wrong: Option<(ErrorKind, String)>) -> Error {
        if let Some((kind, text)) = wrong {
            return Error::new(kind, text);
        }
        let now_us = self.world.now_us();
        let nodes = self.members.len();
        let votes = |member: &&Member| matches!(member.standing(), Standing::Votes);
        let voting = self.members.iter().filter(votes).count();
        let each = self.members.iter().map(|member| format!("{} {}", member.node.at(), member.told(now_us)));
        let needed = nodes / 2 + 1;
        let hint = self.advice(needed.saturating_sub(voting), now_us);
        let missing = match voting < needed {
            true => format!("no majority of the quorum: {voting} of {nodes} nodes vote"),
            // They came too late for this request.
            false => format!("no majority of the quorum replied in time: {voting} of {nodes} nodes vote now"),
        };
        let each = each.collect::<Vec<_>>().join("; ");
        let message = format!("{missing} and {needed} are needed ({each}){hint}");
        Error::new(ErrorKind::Quorum, message)
    }

    /// What to do where so many votes are missing, and nodes rest.
    ///
    /// A new quorum is begun. To begin one that was in use would make two holders: what a node has forgotten may be held.
    /// A quorum looks new if every node is there and rests, and none shows that it was in use before. All of them may have
    /// been emptied before this client met them, so the advice is for a quorum that nobody has used.
    fn advice(&self, missing: usize, now_us: u64) -> String {
        let mut rests: Vec<u64> = self.members.iter().filter_map(|member| member.standing().rests_us(now_us)).collect();
        if rests.len() == self.members.len() && !self.members.iter().any(Member::was_used) {
            return "; if this quorum was never used, run `leasehold quorum begin`; if its servers were restarted or \
                    emptied, wait: a lease that they have lost may be held"
                .to_owned();
        }
        rests.sort_unstable();
        match missing.checked_sub(1).and_then(|last| rests.get(last)) {
            Some(left_us) => {
                let left_s = left_us.div_ceil(1_000_000);
                format!("; wait: a majority votes in {left_s} s, and until then a lost lease may be held")
            }
            None => String::new(),
        }
    }

    /// The same when a link cannot be opened. What all of them say is what is wrong.
    fn cannot_open(&self, away: &[(usize, Error)]) -> Error {
        let kind = away.first().map(|(_, error)| error.kind());
        let is_same = kind.is_some_and(|kind| away.iter().all(|(_, error)| error.kind() == kind));
        match kind {
            Some(kind @ (ErrorKind::Denied | ErrorKind::Unsupported | ErrorKind::Foreign)) if is_same => {
                Error::new(kind, self.too_few(None).to_string())
            }
            _ => self.too_few(None),
        }
    }
}
