//! The machine: the protocol of a session, without I/O.
//!
//! Events come in: a call of a caller, a reply, a message, a connection that came or went, a moment. Effects go out:
//! requests to send, and results for callers, which are delivered when the lock of the machine is free. The machine never
//! waits, never sends, and never reads a clock twice: each event has one [`Moment`].
//!
//! Each operation is one file, which reads from the request over the reply to the retry. It borrows the two parts that
//! contain everything else: the [`Ledger`] (the attempts and what is found by them) and the [`Server`] (what is known of
//! the store and of the connections to it). Only this file has the whole machine. All other files get a [`Turn`].
//!
//! ```text
//!   due  waiting  guards  contact  close    what to do now · callers that wait and give up · guards that end ·
//!    │  ╱       ╱                            connections that come and go, messages · the end of the session
//!   acquire renew reserve lower    the operations
//!   recheck              ╲  ╱
//!     ╲      │         beside       requests about a held grant, which are sent beside its renewal
//!      ╲     │       ╱
//!         grant                    how a lease is entered, shortened and lost
//!        ╱     ╲
//!       │    upgrade condition     an attempt that replaces the grant of another one · one that waits for a notification
//!       │    arrival together      one that arrives at a barrier · several that are sent as one
//!   hand_over  precede             hand-over inside the process · what is sent before an acquire
//!        ╲     ╱
//!        release                   how an attempt is returned to the store
//!           │
//!        replies  inbox_moves      what every reply says, and requests without one · where the inbox is
//!        ╱     ╲
//!   server     ledger              the parts, and below them what they consist of
//! ```

pub(crate) mod acquire;
mod arrival;
mod attempt;
pub(crate) mod beside;
pub(crate) mod close;
pub(crate) mod condition;
mod connections;
pub(crate) mod contact;
pub(crate) mod count_down;
pub(crate) mod due;
mod effects;
mod grant;
pub(crate) mod guards;
mod hand_over;
mod holding;
mod ids;
pub(crate) mod inbox_moves;
pub(crate) mod inbox_place;
mod inbox_timing;
mod lane;
mod ledger;
pub(crate) mod lower;
mod names;
mod order;
mod precede;
pub(crate) mod recheck;
mod refusals;
pub(crate) mod release;
pub(crate) mod renew;
mod replies;
mod reserve;
mod returning;
mod server;
pub(crate) mod together;
mod turn;
pub(crate) mod upgrade;
pub(crate) mod waiting;

use std::sync::Arc;

use leasehold_spec::SessionId;

use self::connections::Connections;
#[cfg(test)]
pub(crate) use self::connections::for_now;
pub(crate) use self::connections::{Reply, silent};
use self::effects::Effects;
pub(crate) use self::effects::Verdict;
pub(crate) use self::lane::{Lanes, Upkeep};
pub(crate) use self::ledger::HandOver;
use self::ledger::Ledger;
pub(crate) use self::order::InFlight;
pub(crate) use self::precede::Predecessors;
use self::server::Server;
use self::turn::Moment;
pub(crate) use self::turn::Turn;
use super::agenda::Thread;
use crate::store::Store;
use crate::world::World;

pub(crate) struct Machine {
    ledger: Ledger,
    server: Server,
}

impl Machine {
    pub(crate) fn new(
        world: Arc<dyn World>,
        store: Arc<dyn Store>,
        session: SessionId,
        lanes: Lanes,
        hand_over: HandOver,
    ) -> Self {
        Self { ledger: Ledger::new(world, session, hand_over), server: Server::new(Connections::new(store, lanes)) }
    }

    /// Makes a change at one moment. Returns its result, its effects outside the machine, and whether to wake the thread.
    pub(crate) fn change<R>(
        &mut self,
        world: &dyn World,
        change: impl FnOnce(&mut Turn<'_>) -> R,
    ) -> (R, Effects, Thread) {
        let turn = &mut Turn::new(&mut self.ledger, &mut self.server, Moment::of(world));
        let result = change(turn);
        due::attend(turn);
        #[cfg(debug_assertions)]
        turn.ledger.assert_attended();
        (result, turn.ledger.effects.take(), turn.ledger.agenda.take_wake())
    }
}
