//! Compares the store with the specification: random histories over links of many clients, each with its memory of a
//! name, and over `step`; with equal answers, messages and rows after each request.
//!
//! `LEASEHOLD_SEED=… cargo test -p leasehold --test file histories` repeats one history.

use std::collections::{BTreeMap, HashSet};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::seam::{Guess, Inbox, Link, Message, Pending, World, choose};
use leasehold_spec::limits::{RANGE_MAX, REVOKE_GRACE_MS, TOKEN_LEAD_US};
use leasehold_spec::{
    Acquire, Answer, Contention, Delivery, Entry, Env, Event, From, Grant, GrantId, GrantState, Hears, Lapse, Mode,
    Name, Op, Order, Outcome, Patience, Place, Renew, Resource, SessionId, Take, Token, step,
};
use leasehold_testkit::Random;
use leasehold_testkit::forward::{Forward, ForwardWorld};
use rusqlite::{Connection, OptionalExtension, Row};
use tokio::sync::mpsc;

use crate::{LONG, Store, eventually, within};

const HISTORIES: u64 = 300;
const STEPS: usize = 60;
const CLIENTS: usize = 5;

/// Clocks that the history moves. Everything else is real.
struct Played {
    now_us: AtomicU64,
    wall_us: AtomicU64,
    ended: mpsc::UnboundedSender<()>,
}

impl ForwardWorld for Played {
    fn now_us(&self) -> u64 {
        self.now_us.load(Ordering::SeqCst)
    }

    fn wall_us(&self) -> u64 {
        self.wall_us.load(Ordering::SeqCst)
    }

    /// Reports the end of the thread, after everything that it had open was closed.
    fn spawn_session(&self, session: Pending<()>) -> std::io::Result<()> {
        let ended = self.ended.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || {
            runtime.block_on(session);
            drop(runtime);
            let _nobody_waits_at_the_end = ended.send(());
        });
        Ok(())
    }
}

/// One client with its own store, as in another process.
struct Client {
    session: SessionId,
    _store: Arc<dyn leasehold::seam::Store>,
    link: Arc<dyn Link>,
    heard: mpsc::UnboundedReceiver<Message>,
    told: HashSet<(GrantId, Token, Event)>,
}

struct Rig {
    world: Arc<Forward<Played>>,
    url: String,
    /// The directory of sockets.
    live: PathBuf,
    db: Connection,
    dice: Random,
    clients: Vec<Client>,
    name: Name,
    model: Resource,
    ids: Vec<GrantId>,
    tickets: BTreeMap<GrantId, u64>,
    seen: BTreeMap<String, u64>,
    nonces: u64,
    ended: mpsc::UnboundedReceiver<()>,
}

impl Rig {
    async fn client(world: &Arc<Forward<Played>>, url: &str, session: SessionId) -> Client {
        let world: Arc<dyn World> = Arc::<Forward<Played>>::clone(world);
        let store = choose(url, None, &world).unwrap();
        let link = store.open().await.unwrap();
        let (tell, heard) = mpsc::unbounded_channel();
        let inbox: Inbox = Arc::new(move |message| drop(tell.send(message)));
        link.attach(session, inbox).await.unwrap();
        Client { session, _store: store, link, heard, told: HashSet::new() }
    }

    async fn kill_one(&mut self) {
        let number = self.dice.below(CLIENTS as u64) as usize;
        self.nonces += 1;
        let session = SessionId(u128::from(self.nonces) << 64 | 0xd1ed);
        let new = Self::client(&self.world, &self.url, session).await;
        // The old client is dropped here, with its sockets.
        let dead = std::mem::replace(&mut self.clients[number], new).session;
        within(LONG, "its end", self.ended.recv()).await.unwrap();
        // A process that another test starts now has a copy of them until it executes another program.
        let live = |part: &str| self.live.join(format!("{dead}.{part}"));
        let has_bell = || UnixDatagram::unbound().unwrap().connect(live("bell")).is_ok();
        eventually("it is dead", async || !has_bell() && UnixStream::connect(live("life")).is_err()).await;
        *self.seen.entry("a client died".into()).or_default() += 1;
    }

    fn pass_time(&mut self) {
        let pass_us = match self.dice.below(40) {
            0 => 70_000_000,
            1..=4 => self.dice.below(10_000_000),
            5..=14 => self.dice.below(700_000),
            15..=24 => 0,
            _ => self.dice.below(3_000),
        };
        self.world.0.now_us.fetch_add(pass_us, Ordering::SeqCst);
        self.world.0.wall_us.fetch_add(pass_us, Ordering::SeqCst);
        if self.dice.below(60) == 0 {
            self.world.0.wall_us.fetch_sub(30_000_000, Ordering::SeqCst);
        }
    }

    fn any_id(&mut self, number: usize) -> GrantId {
        let own: Vec<_> = self.ids.iter().copied().filter(|id| id.session == self.clients[number].session).collect();
        match own.len() as u64 {
            0 => self.new_id(number),
            n => own[self.dice.below(n) as usize],
        }
    }

    fn new_id(&mut self, number: usize) -> GrantId {
        self.nonces += 1;
        let id = GrantId { session: self.clients[number].session, counter: self.nonces, nonce: u64::MAX - self.nonces };
        self.ids.push(id);
        id
    }

    fn op(&mut self, number: usize) -> Op {
        let now_us = self.world.now_us();
        let held = self.model.grants.sole().map(|grant| (grant.id, grant.token));
        let wrong = self.dice.below(6) == 0;
        let (id, token) = match held.filter(|_| !wrong) {
            Some(held) => held,
            None => (self.any_id(number), self.model.last),
        };
        match self.dice.below(20) {
            0..=8 => Op::Acquire(self.acquire(number, now_us)),
            9 | 10 => {
                let from = if self.dice.below(2) == 0 { From::Now } else { From::Grant };
                let late = self.dice.below(10) == 0;
                let not_after_us = if late { now_us - 1 } else { now_us };
                Op::Renew(Renew { id, token, from, lease_ms: 100 + self.dice.below(20_000), not_after_us })
            }
            11 if self.dice.below(2) == 0 => {
                Op::CoolDown { id, used: self.used(token), for_ms: 1 + self.dice.below(20_000) }
            }
            11..=13 => Op::Release { id, token, used: self.used(token) },
            14 => Op::Reserve { id, token, range: [1, 2 * RANGE_MAX, 2 * TOKEN_LEAD_US][self.dice.below(3) as usize] },
            15 | 16 => Op::Leave { id: self.any_id(number), used: self.used(token) },
            17 => {
                let grace_ms = if self.dice.below(2) == 0 { 0 } else { REVOKE_GRACE_MS };
                Op::Revoke { holder: id.public(), token, grace_ms }
            }
            18 => Op::Settle,
            _ => Op::Inspect,
        }
    }

    /// Returns the last used token of a range, or a token outside of it.
    fn used(&mut self, token: Token) -> Token {
        let reserved = self.model.reserved().get().saturating_sub(token.get());
        match self.dice.below(5) {
            0 => Token::NONE,
            1 => Token::HIGHEST,
            2 => token.plus(self.dice.below(reserved + 1)),
            _ => token,
        }
    }

    fn acquire(&mut self, number: usize, now_us: u64) -> Acquire {
        let id = if self.dice.below(3) == 0 { self.any_id(number) } else { self.new_id(number) };
        let place = Place {
            claim_ms: 1_000,
            limit_ms: [None, None, None, Some(0), Some(2_000), Some(u64::MAX / 2_000)][self.dice.below(6) as usize],
            ticket: self.tickets.get(&id).copied(),
            hears: if self.dice.below(5) == 0 { Hears::Polls } else { Hears::Listens },
            order: if self.dice.below(5) == 0 { Order::Strict } else { Order::Relaxed },
        };
        Acquire {
            id,
            take: Take::MUTEX,
            lease_ms: 100 + self.dice.below(10) * self.dice.below(10_000),
            not_after_us: if self.dice.below(15) == 0 { now_us - 1 } else { now_us + 1_000 },
            patience: if self.dice.below(5) == 0 { Patience::Try } else { Patience::Queue(place) },
            label: ["", "host/1", "Ä 'quoted'"][self.dice.below(3) as usize].into(),
            range: [1, 2, RANGE_MAX][self.dice.below(3) as usize],
        }
    }

    /// Plays one request on both.
    async fn play(&mut self) {
        self.pass_time();
        if self.dice.below(30) == 0 {
            self.kill_one().await;
        }
        let number = self.dice.below(CLIENTS as u64) as usize;
        let op = self.op(number);
        let (wall_us, lease_us) = (self.world.wall_us(), self.world.now_us());
        let asked = self.clients[number].link.apply(&self.name, &op, Guess::default());
        let answer = within(LONG, "an answer", asked).await.unwrap();
        let (expected, deliveries) = self.expect(&op, wall_us, lease_us);
        assert_eq!(answer, expected, "the answer to {op:?}");
        if let (Op::Acquire(acquire), Outcome::Queued { ticket, .. }) = (&op, &answer.outcome) {
            self.tickets.insert(acquire.id, *ticket);
        }
        let kind = format!("{:?}", answer.outcome);
        let kind = kind.split([' ', '(', '{']).next().unwrap_or_default().to_owned();
        *self.seen.entry(kind).or_default() += 1;
        let stored = self.stored();
        let is_equal = match stored {
            Some(stored) => stored == self.model || self.fail(&op, &stored),
            None => self.model == Resource::default() || self.model.is_forgotten(wall_us, lease_us),
        };
        assert!(is_equal, "nothing is stored, and it is to be {:?}", self.model);
        for delivery in deliveries {
            self.receives(delivery).await;
        }
    }

    fn fail(&self, op: &Op, stored: &Resource) -> bool {
        panic!("after {op:?} it is to be\n{:#?}\nand it is\n{stored:#?}", self.model)
    }

    /// Returns the answer and the messages of the specification. The lease of a dead session is given back before.
    fn expect(&mut self, op: &Op, wall_us: u64, lease_us: u64) -> (Answer, Vec<Delivery>) {
        let lives = |session: SessionId| self.clients.iter().any(|client| client.session == session);
        let env = Env { wall_us, lease_us, attached: &lives };
        let dead = self
            .model
            .grants
            .sole()
            .filter(|g| g.is_held() && g.end_us() > lease_us && !lives(g.id.session))
            .map(|g| g.id);
        let mut told = Vec::new();
        match (op, dead) {
            (Op::Acquire(_) | Op::Settle, Some(id)) => {
                *self.seen.entry("given back for the dead".into()).or_default() += 1;
                told = step(&mut self.model, &env, &Op::Leave { id, used: Token::HIGHEST }).1;
            }
            // An inspection writes nothing, even if the record is forgotten. If the clock is set back later, it no
            // longer is.
            (Op::Inspect, dead) => {
                let mut shown = self.model.clone();
                shown.grants.take_sole_if(|_| dead.is_some());
                return step(&mut shown, &env, op);
            }
            _ => {}
        }
        let (answer, more) = step(&mut self.model, &env, op);
        told.extend(more);
        (answer, told)
    }

    /// Waits until the receiver of a message gets it. A message that is sent again is received again.
    async fn receives(&mut self, delivery: Delivery) {
        let Some(client) = self.clients.iter_mut().find(|client| client.session == delivery.to) else { return };
        if delivery.event == Event::Granted && self.model.held_by(delivery.id).is_none_or(|g| g.token != delivery.token)
        {
            return; // The grant was ended in the same step: there is no message any more.
        }
        if client.told.contains(&(delivery.id, delivery.token, delivery.event)) {
            return; // Marked again.
        }
        loop {
            let message = within(LONG, &format!("{delivery:?}"), client.heard.recv()).await;
            let Some(Message::Delivery(name, heard)) = message else { continue };
            // The ID that is read from the rows is that of the session's first entry, which can be gone.
            let id = if heard.event == Event::Ending { delivery.id } else { heard.id };
            if name == self.name && matches!(heard.event, Event::Wanted | Event::Ending) {
                // The contention is a level: every reading reports it as it is then.
                if (Delivery { id, ..heard.clone() }) != delivery {
                    continue;
                }
            } else if name != self.name || !client.told.insert((heard.id, heard.token, heard.event)) {
                continue;
            }
            // Whether others wait is reported as it is when the row is read, and not as it was in the middle of the step.
            let now = if heard.event == Event::Granted { self.model.contention() } else { Contention::None };
            let told_at_once = heard.contention == delivery.contention;
            assert!(told_at_once || heard.contention == now, "{heard:?}: {now:?}");
            assert_eq!(Delivery { contention: delivery.contention, id, ..heard }, delivery);
            *self.seen.entry(format!("told: {:?}", delivery.event)).or_default() += 1;
            return;
        }
    }

    /// Returns the record in the rows, read by other code than that of the store.
    fn stored(&self) -> Option<Resource> {
        let sql = "SELECT * FROM names WHERE name = ?1";
        let row = |row: &Row<'_>| {
            let number = |column: &str| row.get::<_, i64>(column).map(i64::cast_unsigned);
            let released: Option<[u8; 32]> = row.get("released")?;
            let released = released.map(|bytes| {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                digits.parse::<GrantId>().unwrap()
            });
            let grant = match row.get::<_, Option<i64>>("state")? {
                None => None,
                Some(state) => Some(Grant {
                    id: id(row)?,
                    token: Token::new(number("token")?).unwrap(),
                    since_us: number("since_us")?,
                    length_ms: number("length_ms")?,
                    state: [GrantState::Pushed, GrantState::Held, GrantState::Revoked, GrantState::CoolingDown]
                        [state as usize],
                    units: 1,
                    mode: Mode::Plain,
                    label: row.get("label")?,
                    range: number("range")?,
                }),
            };
            let last = Token::new(number("last")?).unwrap();
            let keep_until_us = number("keep_until_us")?;
            let (lapses, queue) = (Vec::new(), [].into());
            Ok((
                row.get::<_, i64>("id")?,
                Resource { last, grants: grant.into(), released, lapses, queue, keep_until_us, ..Resource::default() },
            ))
        };
        let (id_, mut resource) = self.db.query_row(sql, [self.name.as_str()], row).optional().unwrap()?;
        let mut statement = self.db.prepare("SELECT * FROM waiters WHERE name = ?1 ORDER BY ticket, seq").unwrap();
        let entry = |row: &Row<'_>| {
            let number = |column: &str| row.get::<_, i64>(column).map(i64::cast_unsigned);
            Ok(Entry {
                id: id(row)?,
                ticket: number("ticket")?,
                lease_ms: number("lease_ms")?,
                claim_ms: number("claim_ms")?,
                limit_us: row.get::<_, Option<i64>>("limit_us")?.map(i64::cast_unsigned),
                seen_us: number("seen_us")?,
                hears: if number("hears")? == 1 { Hears::Polls } else { Hears::Listens },
                order: if number("strict")? == 1 { Order::Strict } else { Order::Relaxed },
                units: 1,
                mode: Mode::Plain,
                label: row.get("label")?,
                range: number("range")?,
            })
        };
        resource.queue = statement.query_map([id_], entry).unwrap().map(Result::unwrap).collect();
        let mut statement = self.db.prepare("SELECT * FROM lapses WHERE name = ?1 ORDER BY place").unwrap();
        let lapse = |row: &Row<'_>| {
            let session = SessionId(u128::from_be_bytes(row.get("session")?));
            Ok(Lapse { session, at_us: row.get::<_, i64>("at_us")?.cast_unsigned() })
        };
        resource.lapses = statement.query_map([id_], lapse).unwrap().map(Result::unwrap).collect();
        Some(resource)
    }
}

fn id(row: &Row<'_>) -> rusqlite::Result<GrantId> {
    let session = SessionId(u128::from_be_bytes(row.get("session")?));
    let number = |column: &str| row.get::<_, i64>(column).map(i64::cast_unsigned);
    Ok(GrantId { session, counter: number("counter")?, nonce: number("nonce")? })
}

async fn history(store: &Store, seed: u64) -> BTreeMap<String, u64> {
    let (tell_end, ended) = mpsc::unbounded_channel();
    let world = Arc::new(Forward(Played {
        now_us: AtomicU64::new(1_000_000_000_000 + seed % 1_000 * 3_600_000_000),
        wall_us: AtomicU64::new(1_795_000_000_000_000),
        ended: tell_end,
    }));
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let session = SessionId(u128::from(seed) << 64 | number as u128);
        clients.push(Rig::client(&world, &store.url(), session).await);
    }
    let mut rig = Rig {
        world,
        url: store.url(),
        live: store.path().join("live"),
        db: Connection::open(store.path().join("leasehold.db")).unwrap(),
        dice: Random::new(seed),
        clients,
        name: Name::new(&format!("history {seed}")).unwrap(),
        model: Resource::default(),
        ids: Vec::new(),
        tickets: BTreeMap::new(),
        seen: BTreeMap::new(),
        nonces: seed << 20,
        ended,
    };
    for _ in 0..STEPS {
        rig.play().await;
    }
    rig.seen
}

#[tokio::test(flavor = "multi_thread")]
async fn random_histories() {
    let given = std::env::var("LEASEHOLD_SEED").ok().map(|text| text.parse().unwrap());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let first = given.unwrap_or(u64::from(now.subsec_nanos()));
    let store = Store::new();
    let mut seen: BTreeMap<String, u64> = BTreeMap::new();
    for seed in first..first + given.map_or(HISTORIES, |_| 1) {
        println!("LEASEHOLD_SEED={seed} cargo test -p leasehold --test file histories -- --nocapture");
        for (what, count) in history(&store, seed).await {
            *seen.entry(what).or_default() += count;
        }
    }
    println!("{seen:#?}");
    if given.is_none() {
        for what in MET {
            assert!(seen.get(what).is_some_and(|count| *count >= 10), "{what} was hardly met: {seen:#?}");
        }
    }
}

/// Cases that a run must meet: otherwise it has not shown that the two agree on them.
const MET: [&str; 20] = [
    "Granted",
    "Queued",
    "Busy",
    "Gone",
    "Late",
    "Renewed",
    "Reserved",
    "Lost",
    "Released",
    "NotHeld",
    "Left",
    "Revoking",
    "Settled",
    "Inspected",
    "told: Granted",
    "told: Revoked",
    "told: Wanted",
    "told: Ending",
    "a client died",
    "given back for the dead",
];
