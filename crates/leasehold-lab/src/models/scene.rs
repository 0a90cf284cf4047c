//! The parameters of a model: the tasks of each session, the durations, and how often each fault may happen.

use leasehold_spec::Order;

use super::session::Run;

/// One tick of every clock in the model.
pub(crate) const TICK_US: u64 = 100_000;
pub(crate) const TICK_MS: u64 = TICK_US / 1000;
/// The first tick, on the store's clock. It is far enough from zero for times that lie in the past.
const EPOCH: u64 = 10;

/// Returns the store's clock at a tick, unless it was set back.
pub(crate) fn clock_us(tick: u8) -> u64 {
    (EPOCH + u64::from(tick)) * TICK_US
}

/// Returns the store's clock at a tick, for a clock that was set back by `behind` ticks.
pub(crate) fn clock_behind_us(tick: u8, behind: u8) -> u64 {
    clock_us(tick) - u64::from(behind) * TICK_US
}

/// Returns the tick of a time on the store's clock.
pub(crate) fn when(clock_us: u64) -> u8 {
    u8::try_from((clock_us / TICK_US).saturating_sub(EPOCH)).expect("a run ends within 255 ticks")
}

/// Converts a duration into whole ticks, rounded down.
pub(crate) fn ticks(length_us: u64) -> u8 {
    u8::try_from(length_us / TICK_US).expect("a lease is shorter than 255 ticks")
}

/// Whether a holder renews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// At a third of the lease, for as long as the section lasts.
    Thirds,
    /// A fixed lease: only a claim is renewed, once, up to the end of the lease.
    Fixed,
}

/// The store's wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wall {
    /// The wall clock agrees with the clock of leases.
    Right,
    /// The wall clock was set back by more than a run lasts: only the record's highest token keeps tokens apart.
    SetBack,
}

/// How often each fault may happen. It is part of the state, where it says how often each fault may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Ticks that may pass while a message is in flight on a live connection.
    pub(crate) slow: u8,
    pub(crate) cuts: u8,
    pub(crate) lost_pushes: u8,
    /// Requests that are sent twice because the reply is slow.
    pub(crate) retries: u8,
    pub(crate) cancels: u8,
    pub(crate) pauses: u8,
    pub(crate) crashes: u8,
    /// The store refuses a script because its memory is full.
    pub(crate) refusals: u8,
    /// The store refuses a batch (P53): a request of it is sent again, behind those that were sent meanwhile.
    pub(crate) resends: u8,
    /// The store restarts empty.
    pub(crate) restarts: u8,
    /// The store fails over to a copy that missed the last change.
    pub(crate) failovers: u8,
    /// Somebody revokes the grant that is held.
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
        resends: 0,
        restarts: 0,
        failovers: 0,
        revokes: 0,
        set_backs: 0,
    };
}

/// A fault that may happen any number of times.
pub(crate) const ALWAYS: u8 = u8::MAX;

/// One model. Its size is chosen so that the search explores it to the end.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// A description of the schedules that its state space is meant to contain.
    pub(crate) about: &'static str,
    /// The tasks of each session.
    pub(crate) sessions: &'static [&'static [Order]],
    /// Only these sessions are hit by faults (bit set): a symmetric copy finds nothing new.
    pub(crate) hit: u8,
    /// Connections of a session that faults hit. The others have one: with two, only their own messages would cross.
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
    /// How many tokens an attempt requests (K).
    pub(crate) range: u8,
    /// The grace that a revocation leaves to the holder.
    pub(crate) grace: u8,
    /// The minimum hold (P23): for this long after a grant nobody else holds, however short the section is; 0: no
    /// minimum.
    pub(crate) min_hold: u8,
    /// How far the store's clock is set back.
    pub(crate) back: u8,
    /// The wall clock, which tokens grow with.
    pub(crate) wall: Wall,
    pub(crate) renewal: Renewal,
    /// The sessions without an inbox, which poll (bit set).
    pub(crate) pollers: u8,
    /// The first session's inbox is attached to another node: the store that runs the scripts does not count it (P6).
    pub(crate) is_uncounted: bool,
    pub(crate) budget: Budget,
}

impl Scene {
    /// The defaults of most scenes.
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

    /// Returns the longest time between two re-checks (P15).
    pub(crate) fn floor(&self) -> u8 {
        self.third()
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.renewal == Renewal::Fixed
    }

    /// Whether no connection breaks and no request is sent twice.
    pub(crate) fn is_whole(&self) -> bool {
        let Budget { cuts, retries, crashes, restarts, failovers, .. } = self.budget;
        cuts + retries + crashes + restarts + failovers == 0
    }

    /// Whether a lease can end before it is released.
    pub(crate) fn may_lapse(&self) -> bool {
        self.until >= self.lease && (self.is_fixed() || self.budget.crashes + self.budget.pauses > 0)
    }

    /// Whether sessions hand the lease over to their own tasks.
    pub(crate) fn has_runs(&self) -> bool {
        self.passes > 0
    }

    /// Whether a lease cools down after a section that was shorter than the minimum hold.
    pub(crate) fn cools_down(&self) -> bool {
        self.min_hold > 0
    }

    /// Whether a session has more tasks than tokens that an attempt requests.
    pub(crate) fn is_short_of_tokens(&self) -> bool {
        self.has_runs() && self.sessions.iter().any(|tasks| tasks.len() > usize::from(self.range))
    }

    /// Whether a process can pause in a run until somebody else holds.
    pub(crate) fn has_old_holders(&self) -> bool {
        self.has_runs() && self.until > self.lease && self.budget.pauses > 0
    }

    pub(crate) fn wall_us(&self, clock_us: u64) -> u64 {
        match self.wall {
            Wall::Right => clock_us,
            Wall::SetBack => 0,
        }
    }

    /// Returns the number of ticks after which a dead holder has a successor: its lease, and once more as much for each
    /// time that the store's clock was set back behind it.
    pub(crate) fn followed_within(&self) -> u8 {
        self.lease * (1 + self.budget.set_backs)
    }

    /// Whether no message is slow or lost.
    pub(crate) fn is_prompt(&self) -> bool {
        self.budget.slow + self.budget.lost_pushes == 0 && self.is_uncut()
    }

    fn is_uncut(&self) -> bool {
        let Budget { cuts, retries, refusals, resends, restarts, failovers, .. } = self.budget;
        cuts + retries + refusals + resends + restarts + failovers == 0
    }

    pub(crate) fn is_hit(&self, session: u8) -> bool {
        self.hit & (1 << session) != 0
    }

    pub(crate) fn polls(&self, session: u8) -> bool {
        self.pollers & (1 << session) != 0
    }

    /// Whether no fault happens at all.
    pub(crate) fn is_faultless(&self) -> bool {
        self.budget == Budget::default()
    }

    pub(crate) fn links_of(&self, session: u8) -> u8 {
        if self.is_hit(session) { self.links } else { 1 }
    }

    pub(crate) fn is_counted(&self, session: u8) -> bool {
        !(self.polls(session) || self.is_uncounted && session == 0)
    }

    /// Returns the limits of a run. They are part of the state only in scenes with runs.
    pub(crate) fn run(&self, run: Run) -> Run {
        if self.has_runs() { run } else { Run::default() }
    }
}
