//! How a run is set up: who does what, how long things last, and how often what may go wrong.

use leasehold_spec::Order;

use super::session::Run;

/// One tick of every clock in the model.
pub(crate) const TICK_US: u64 = 100_000;
pub(crate) const TICK_MS: u64 = TICK_US / 1000;
/// The first tick, on the store's clock: far enough from zero for what lies in the past.
const EPOCH: u64 = 10;

/// The store's clock at a tick, unless it was set back.
pub(crate) fn clock_us(tick: u8) -> u64 {
    (EPOCH + u64::from(tick)) * TICK_US
}

/// The same of a clock that was set back by so many ticks.
pub(crate) fn clock_behind_us(tick: u8, behind: u8) -> u64 {
    clock_us(tick) - u64::from(behind) * TICK_US
}

/// The tick of a moment on the store's clock.
pub(crate) fn when(clock_us: u64) -> u8 {
    u8::try_from((clock_us / TICK_US).saturating_sub(EPOCH)).expect("a run ends within 255 ticks")
}

/// A length in whole ticks, rounded down.
pub(crate) fn ticks(length_us: u64) -> u8 {
    u8::try_from(length_us / TICK_US).expect("a lease is shorter than 255 ticks")
}

/// Whether a holder renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// At a third, as long as the section lasts.
    Thirds,
    /// A fixed lease: only a claim is renewed, once, up to the end of the lease.
    Fixed,
}

/// The store's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wall {
    /// It goes with the clock of leases.
    Right,
    /// It was set back by more than a run lasts: only what the record remembers keeps tokens apart.
    SetBack,
}

/// What may go wrong, how often. Also the part of the state that says how often it still may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Ticks that pass while a message is under way on a live connection.
    pub(crate) slow: u8,
    pub(crate) cuts: u8,
    pub(crate) lost_pushes: u8,
    /// A request sent twice because its answer is slow.
    pub(crate) retries: u8,
    pub(crate) cancels: u8,
    pub(crate) pauses: u8,
    pub(crate) crashes: u8,
    /// A script that is refused for want of memory.
    pub(crate) refusals: u8,
    /// The store restarts empty.
    pub(crate) restarts: u8,
    /// The store fails over to a copy that missed the last change.
    pub(crate) failovers: u8,
    /// Somebody revokes what is held.
    pub(crate) revokes: u8,
    /// The store's clock is set back.
    pub(crate) set_backs: u8,
}

impl Budget {
    /// Nothing goes wrong.
    pub(crate) const NONE: Self = Self {
        slow: 0,
        cuts: 0,
        lost_pushes: 0,
        retries: 0,
        cancels: 0,
        pauses: 0,
        crashes: 0,
        refusals: 0,
        restarts: 0,
        failovers: 0,
        revokes: 0,
        set_backs: 0,
    };
}

/// As often as it likes.
pub(crate) const ALWAYS: u8 = u8::MAX;

/// One model: its size is chosen so that it is explored to the end.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// What its state space is meant to hold.
    pub(crate) about: &'static str,
    /// The tasks of each session.
    pub(crate) sessions: &'static [&'static [Order]],
    /// Only these sessions are hit by faults (bit set): a symmetric copy finds nothing new.
    pub(crate) hit: u8,
    /// Connections of a session that faults hit. The others have one: two would only let their own messages cross.
    pub(crate) links: u8,
    pub(crate) until: u8,
    /// Every task has called `lock()` when this tick ends.
    pub(crate) start_by: u8,
    pub(crate) lease: u8,
    pub(crate) claim: u8,
    /// How far ahead `not_after` is.
    pub(crate) slack: u8,
    /// Local passes once others wait (B); 0: no local runs.
    pub(crate) passes: u8,
    /// How many tokens an attempt asks for (K).
    pub(crate) range: u8,
    /// What a revocation leaves to the holder.
    pub(crate) grace: u8,
    /// For how long nobody else holds from the moment of a grant, however short the section is (P23); 0: no minimum.
    pub(crate) min_hold: u8,
    /// How far the store's clock is set back.
    pub(crate) back: u8,
    /// What tokens grow with.
    pub(crate) wall: Wall,
    pub(crate) renewal: Renewal,
    /// These sessions have no inbox, and look (bit set).
    pub(crate) pollers: u8,
    /// The first session's inbox hears on another node: the store that runs the scripts does not count it (P6).
    pub(crate) is_uncounted: bool,
    pub(crate) budget: Budget,
}

impl Scene {
    /// What most of them are like.
    pub(crate) const BASE: Self = Self {
        name: "",
        about: "",
        sessions: &[&[Order::Relaxed], &[Order::Relaxed]],
        hit: 0b001,
        links: 1,
        until: 5,
        start_by: 1,
        lease: 3,
        claim: 2,
        slack: 1,
        passes: 0,
        range: 1,
        grace: 0,
        min_hold: 0,
        back: 0,
        wall: Wall::Right,
        renewal: Renewal::Fixed,
        pollers: 0,
        is_uncounted: false,
        budget: Budget::NONE,
    };

    pub(crate) fn third(&self) -> u8 {
        (self.lease / 3).max(1)
    }

    /// The longest time between two looks (P15).
    pub(crate) fn floor(&self) -> u8 {
        self.third()
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.renewal == Renewal::Fixed
    }

    /// No connection breaks and no request is sent twice.
    pub(crate) fn is_whole(&self) -> bool {
        let Budget { cuts, retries, crashes, restarts, failovers, .. } = self.budget;
        cuts + retries + crashes + restarts + failovers == 0
    }

    /// Whether a lease can end before it is given back.
    pub(crate) fn may_lapse(&self) -> bool {
        self.until >= self.lease && (self.is_fixed() || self.budget.crashes + self.budget.pauses > 0)
    }

    /// Whether sessions hand the lease on to their own tasks.
    pub(crate) fn has_runs(&self) -> bool {
        self.passes > 0
    }

    /// Whether a lease cools down after a section that was shorter than the minimum hold.
    pub(crate) fn cools_down(&self) -> bool {
        self.min_hold > 0
    }

    /// A session has more tasks than an attempt asks tokens for.
    pub(crate) fn is_short_of_tokens(&self) -> bool {
        self.has_runs() && self.sessions.iter().any(|tasks| tasks.len() > usize::from(self.range))
    }

    /// A process can stand still in a run until somebody else holds.
    pub(crate) fn has_old_holders(&self) -> bool {
        self.has_runs() && self.until > self.lease && self.budget.pauses > 0
    }

    pub(crate) fn wall_us(&self, clock_us: u64) -> u64 {
        match self.wall {
            Wall::Right => clock_us,
            Wall::SetBack => 0,
        }
    }

    /// After so many ticks a dead holder is followed: its lease, and once more as much for each time that the store's clock
    /// was set back behind it.
    pub(crate) fn followed_within(&self) -> u8 {
        self.lease * (1 + self.budget.set_backs)
    }

    /// No message is slow or lost.
    pub(crate) fn is_prompt(&self) -> bool {
        self.budget.slow + self.budget.lost_pushes == 0 && self.is_uncut()
    }

    fn is_uncut(&self) -> bool {
        let Budget { cuts, retries, refusals, restarts, failovers, .. } = self.budget;
        cuts + retries + refusals + restarts + failovers == 0
    }

    pub(crate) fn is_hit(&self, session: u8) -> bool {
        self.hit & (1 << session) != 0
    }

    pub(crate) fn polls(&self, session: u8) -> bool {
        self.pollers & (1 << session) != 0
    }

    /// Nothing goes wrong at all.
    pub(crate) fn is_faultless(&self) -> bool {
        self.budget == Budget::default()
    }

    pub(crate) fn links_of(&self, session: u8) -> u8 {
        if self.is_hit(session) { self.links } else { 1 }
    }

    pub(crate) fn is_counted(&self, session: u8) -> bool {
        !(self.polls(session) || self.is_uncounted && session == 0)
    }

    /// What bounds a run is part of the state only where there are runs.
    pub(crate) fn run(&self, run: Run) -> Run {
        if self.has_runs() { run } else { Run::default() }
    }
}
