//! One node: its state, the requests in flight to it, and their effects.

use super::scenes::{Flaw, Scene, Scheme};

/// The nodes' clocks show this at tick 0, so a proposal below their clocks is possible.
pub(super) const EPOCH: u8 = 10;
pub(super) const NEVER: u8 = u8::MAX;
/// The maximum number of attempts in a scene.
pub(super) const ATTEMPTS: usize = 3;

/// One node. Sets contain attempts, or tokens of each attempt, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Node {
    /// By how much its clock is ahead of the slowest possible one.
    pub(super) ahead: u8,
    /// The largest token that it knows, or the number of its grants.
    pub(super) highest: u8,
    pub(super) holder: Option<Holder>,
    /// It has lost everything and grants nothing before this tick.
    pub(super) quarantine_until: u8,
    pub(super) has_forgotten: bool,
    /// The requests for the lease that may still be carried out here.
    pub(super) asked: [u32; ATTEMPTS],
    /// The withdrawn rounds that may still be given back here.
    pub(super) withdrawn: [u32; ATTEMPTS],
    /// The attempts whose token may still be written back here.
    pub(super) written_back: u8,
    /// The attempts whose renewal may still be carried out here.
    pub(super) renewed: u8,
    /// The attempts whose newest request it has granted.
    pub(super) voted: u8,
    /// Until when a holder that renews can rely on this node's vote.
    pub(super) ends: [u8; ATTEMPTS],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) attempt: usize,
    /// The token that it proposed.
    pub(super) token: u8,
    pub(super) until: u8,
    pub(super) by: By,
}

/// How the holder got the vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum By {
    Asking,
    /// In place of the same attempt's vote of an earlier round.
    AskingAgain,
    /// The node did not know the holder.
    Renewing,
}

/// A node's reply to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Renewed,
    Filled,
    Lost,
}

impl Node {
    /// Carries out a request for the lease. If it grants, returns the largest token that the node then knows. If it had
    /// granted the lease to the same attempt before, returns the token of that grant.
    pub(super) fn grant(&mut self, scene: &Scene, tick: u8, attempt: usize, token: u8) -> Option<u8> {
        let clock = EPOCH + tick + self.ahead;
        let is_near = scene.timing.is_none_or(|timing| clock.abs_diff(token) <= timing.window);
        let is_above = scene.scheme != Scheme::Proposed || token > self.highest || scene.flaw == Flaw::VotesBelow;
        if tick < self.quarantine_until {
            return None;
        }
        let by = match self.holder.filter(|holder| holder.until > tick) {
            None => By::Asking,
            Some(own) if own.attempt == attempt && scene.scheme == Scheme::Proposed => {
                if !(is_above && is_near && token > own.token) {
                    return Some(own.token);
                }
                By::AskingAgain
            }
            Some(_) => return None,
        };
        if !is_above || !is_near {
            return None;
        }
        let until = scene.timing.map_or(NEVER, |timing| tick + timing.lease);
        self.holder = Some(Holder { attempt, token, until, by });
        match scene.scheme {
            Scheme::Counters => self.highest += 1,
            Scheme::Proposed => self.highest = self.highest.max(token),
            Scheme::WriteBack | Scheme::WriteBackHeld | Scheme::WriteBackAbove => {}
        }
        Some(self.highest)
    }

    pub(super) fn may_renew(&self, tick: u8) -> bool {
        tick >= self.quarantine_until
    }

    /// Carries out a renewal. If the node does not know the holder, it votes for the holder from then on, provided that
    /// it is free and has voted for no larger token.
    pub(super) fn renew(&mut self, scene: &Scene, tick: u8, attempt: usize, token: u8) -> Kept {
        let until = scene.timing.map_or(NEVER, |timing| tick + timing.lease);
        match &mut self.holder {
            Some(holder) if holder.attempt == attempt && holder.token == token => {
                holder.until = until;
                Kept::Renewed
            }
            Some(_) => Kept::Lost,
            None if token < self.highest && !matches!(scene.flaw, Flaw::FillsBehind | Flaw::FillsBehindAtOnce) => {
                Kept::Lost
            }
            None => {
                self.holder = Some(Holder { attempt, token, until, by: By::Renewing });
                self.highest = self.highest.max(token);
                let counts = matches!(scene.flaw, Flaw::FillCounts | Flaw::FillsBehindAtOnce);
                if counts { Kept::Renewed } else { Kept::Filled }
            }
        }
    }

    /// Takes back the vote of a lost round: of the round with this token, or of an earlier one.
    pub(super) fn take_back(&mut self, scene: &Scene, attempt: usize, token: u8) {
        let is_of_it = |holder: &Holder| holder.token <= token || scene.flaw == Flaw::TakesBackAny;
        self.holder = self.holder.filter(|holder| holder.attempt != attempt || !is_of_it(holder));
    }

    pub(super) fn asked(&self) -> impl Iterator<Item = (usize, u8)> {
        each(self.asked)
    }

    pub(super) fn withdrawn(&self) -> impl Iterator<Item = (usize, u8)> {
        each(self.withdrawn)
    }
}

fn each(sets: [u32; ATTEMPTS]) -> impl Iterator<Item = (usize, u8)> {
    let of = |(attempt, set): (usize, u32)| (0..32).filter(move |at| set & (1 << at) != 0).map(move |at| (attempt, at));
    sets.into_iter().enumerate().flat_map(of)
}

pub(super) fn has(set: u8, attempt: usize) -> bool {
    set & (1 << attempt) != 0
}
