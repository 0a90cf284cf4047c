//! A cell, which runs on threads of its own.

use std::fmt;

use leasehold::{Error, Leasehold, blocking};

use super::acts::{Act, Rival};
use super::bounds::{Bound, bound, lease};
use super::homes::Connecting;
use super::party::{Client, Held};
use super::playing::{Event, Gate, Playing, SOON, Wire};
use super::{Call, Face, Flavor, Place, Weather};
use crate::conformance::{Backend, HandOver};

/// How many later calls follow the first one.
const AGAIN: usize = 5;

/// One cell of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// Whether the store answers.
    pub weather: Weather,
    /// The call.
    pub call: Call,
    /// The face that makes it.
    pub face: Face,
    /// The kind of runtime that connected.
    pub flavor: Flavor,
    /// Where the call is made.
    pub place: Place,
}

/// The store that the cells share.
#[derive(Clone)]
pub(crate) struct Ground {
    url: String,
    hand_over: HandOver,
    pub(super) rival: Rival,
}

impl Cell {
    /// Returns every cell that has a meaning on this store.
    pub fn all(backend: Backend) -> Vec<Self> {
        let mut cells = Vec::new();
        for &weather in Weather::ALL {
            for &call in Call::ALL {
                for &face in Face::ALL {
                    for &flavor in Flavor::ALL {
                        let at = Place::ALL.iter().map(|&place| Self { weather, call, face, flavor, place });
                        cells.extend(at.filter(|cell| cell.is_meant(backend)));
                    }
                }
            }
        }
        cells
    }

    /// Whether this call exists there, and its flavor makes a difference.
    fn is_meant(self, backend: Backend) -> bool {
        let Self { weather, call, face, flavor, place } = self;
        let is_first_flavor = flavor == Flavor::CurrentThread;
        match (call, face) {
            // No runtime has connected before it.
            (Call::Connect, _) if !is_first_flavor || place.needs_connected() => return false,
            // A task is canceled by dropping its future.
            (Call::LockOrCancel, Face::Tasks) => return false,
            // A blocking client has no task in the runtime that connects.
            (_, Face::Threads) if !is_first_flavor => return false,
            _ => {}
        }
        match weather {
            Weather::Healthy => true,
            // A store in this process is never silent.
            Weather::Silent => backend != Backend::Memory && self.bound().is_some(),
        }
    }

    /// Returns its bound.
    #[must_use]
    pub fn bound(self) -> Option<Bound> {
        bound(self.call, self.place, self.weather)
    }

    /// Begins to play it on a store, under a name that no other cell uses.
    pub(super) fn begin(self, ground: &Ground, name: String) -> Playing {
        let bound = self.bound().expect("a cell that means something");
        let ground = ground.clone();
        Playing::begin(bound, move |wire| self.play(&ground, &name, wire))
    }

    /// Plays it on the calling thread.
    fn play(self, ground: &Ground, name: &str, wire: &Wire) {
        let runtime = self.flavor.build();
        let (client, held) = match runtime.block_on(self.prepare(ground, name)) {
            Ok(prepared) => prepared,
            Err(error) => return wire.say(Event::Wrong(format!("it did not even begin: {error}"))),
        };
        let (connecting, caller) = Connecting::then(runtime, self.flavor, self.place);
        let mut act = Act { cell: self, ground, client, name, caller };
        self.rounds(&mut act, held, wire);
        wire.await_done();
        let client = act.client.take();
        drop(act);
        connecting.end();
        if let Some(client) = client {
            let closed = pollster::block_on(client.close());
            if self.weather == Weather::Healthy && !closed.unconfirmed().is_empty() {
                wire.say(Event::Wrong(format!("left behind: {closed:?}")));
            }
        }
        wire.say(Event::Ended);
    }

    /// Creates the client, with everything that it keeps for its calls, and its guard, in the runtime that connects.
    async fn prepare(self, ground: &Ground, name: &str) -> Result<(Option<Client>, Option<Held>), Error> {
        if self.call == Call::Connect {
            return Ok((None, None));
        }
        let client = ground.connect(self.face).await?;
        let before = client.lock(&format!("{name}, before"), SOON).lock().await?;
        let _ = before.release().await?;
        let held = match self.call.needs_guard() {
            true => Some(client.lock(name, lease(self.call)).lock().await?),
            false => None,
        };
        Ok((Some(client), held))
    }

    fn rounds(self, act: &mut Act<'_>, mut held: Option<Held>, wire: &Wire) {
        let again = if self.weather == Weather::Silent || self.call == Call::Close { 0 } else { AGAIN };
        for at in 0..=again {
            let gate = if at == 0 { Gate::First(wire) } else { Gate::Later };
            let wrong = match act.round(held.take(), &gate) {
                Ok(round) => {
                    wire.say(if at == 0 { Event::First(round.took) } else { Event::Again(round.took) });
                    round.wrong
                }
                Err(wrong) => Some(wrong),
            };
            if let Some(wrong) = wrong {
                return wire.say(Event::Wrong(wrong));
            }
        }
    }
}

impl Place {
    /// Whether it needs a runtime that connected before the call.
    pub(super) const fn needs_connected(self) -> bool {
        match self {
            Self::OwnIdle | Self::OwnBlocked | Self::NoRuntime => false,
            Self::ConnectingBlocked
            | Self::ConnectingGone
            | Self::InConnectingBlocked
            | Self::NoRuntimeConnectingGone => true,
        }
    }
}

impl Ground {
    /// # Panics
    /// If the store cannot be reached.
    pub(crate) fn new(url: &str, hand_over: HandOver) -> Self {
        let rival = Rival(blocking::Leasehold::connect(url).expect("the store is there"));
        Self { url: url.to_owned(), hand_over, rival }
    }

    pub(super) async fn connect(&self, face: Face) -> Result<Client, Error> {
        let is_remote = self.hand_over == HandOver::Remote;
        match face {
            Face::Tasks => {
                let builder = Leasehold::builder(&self.url);
                let builder = if is_remote { builder.remote_hand_over() } else { builder };
                builder.connect().await.map(Client::Tasks)
            }
            Face::Threads => {
                let builder = blocking::Leasehold::builder(&self.url);
                let builder = if is_remote { builder.remote_hand_over() } else { builder };
                builder.connect().map(Client::Threads)
            }
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { weather, call, face, flavor, place } = self;
        write!(f, "{weather:?}/{call:?}/{face:?}/{flavor:?}/{place:?}")
    }
}
