//! First come, first served: clients come to a lock one after the other, and have to be served in this order.
//!
//! The lab orders each of them to wait only when it has seen the one before in the queue, by an inspection. So it knows
//! since when each of them waits, and the checker of the test kit counts how often each was overtaken: never is the
//! promise, between clients, and with `fair()` between all calls.
//!
//! No fault strikes meanwhile, except that the holder or a waiter is killed. A waiter whose process gets no processor for
//! a second loses its turn by design: its claim ends (P7). Then the lock lies idle for that second, which shows in the
//! history. Such a line is not judged.

use leasehold_testkit::history::Event;

use super::names::Class;

/// A client in the queue.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) label: String,
    /// A time at which it waited.
    pub(crate) at_us: u64,
}

/// The queue of a round, in the order of arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) places: Vec<Place>,
    /// The first holder was killed, so the second one has to wait for the end of the lease.
    pub(crate) is_behind_a_death: bool,
}

/// For so long nobody holds only if a claim has ended. A claim lasts a second.
const IDLE_US: u64 = 700_000;

impl Line {
    /// Records in the history since when each client has waited. Returns how many are judged.
    pub(crate) fn record(&self, events: &mut [Event]) -> u64 {
        if self.has_idled(events) {
            return 0;
        }
        let mut judged = 0;
        for event in events {
            let Event::Granted { name, client, asked_us, queued_us, .. } = event else { continue };
            if Class::of(name) == Class::Line {
                *queued_us = self.since_us(client, *asked_us);
                judged += u64::from(queued_us.is_some());
            }
        }
        judged
    }

    /// Returns since when a call has surely waited: the lab has seen its client for the first time after the call.
    fn since_us(&self, client: &str, asked_us: u64) -> Option<u64> {
        let (label, _) = client.split_once('/')?;
        let seen = self.places.iter().find(|place| place.label == label && place.at_us >= asked_us);
        seen.map(|place| place.at_us)
    }

    /// Returns whether nobody held for so long that a waiter has lost its turn.
    fn has_idled(&self, events: &[Event]) -> bool {
        let ended_us = |of: (&str, u64)| {
            events.iter().find_map(|event| match event {
                Event::Ended { client, token, at_us, .. } if (client.as_str(), *token) == of => Some(*at_us),
                _ => None,
            })
        };
        let held = events.iter().filter_map(|event| match event {
            Event::Granted { name, client, token, asked_us, granted_us, .. } if Class::of(name) == Class::Line => {
                let has_waited = self.since_us(client, *asked_us).is_some();
                Some((*granted_us, ended_us((client, *token)).unwrap_or(*granted_us), has_waited))
            }
            _ => None,
        });
        let mut held: Vec<(u64, u64, bool)> = held.collect();
        held.sort_unstable();
        let excepted = usize::from(self.is_behind_a_death);
        held.windows(2).skip(excepted).any(|pair| {
            let [(_, ended_us, _), (next_us, _, has_waited)] = [pair[0], pair[1]];
            has_waited && next_us.saturating_sub(ended_us) > IDLE_US
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::checker::{Rules, check};
    use leasehold_testkit::history::{Ended, History, Share};

    use super::*;

    const MS: u64 = 1_000;

    /// Returns the history of a line: the clients with the times at which each asked, was granted and ended, in ms.
    fn events(grants: &[(&str, u64, u64, u64)]) -> Vec<Event> {
        let each = grants.iter().enumerate().flat_map(|(nth, (client, asked, granted, ended))| {
            let (name, client, token) = ("r1.line".to_owned(), (*client).to_owned(), nth as u64 + 1);
            let ends = Event::Ended {
                name: name.clone(),
                client: client.clone(),
                token,
                at_us: ended * MS,
                how: Ended::Released,
            };
            let (asked_us, granted_us) = (asked * MS, granted * MS);
            let (attempt, share, queued_us) = (token, Share::Exclusive, None);
            [Event::Granted { name, client, attempt, token, share, asked_us, queued_us, granted_us }, ends]
        });
        each.collect()
    }

    /// Returns how many waiters are judged, and how many of them were overtaken.
    fn judge(line: &Line, grants: &[(&str, u64, u64, u64)]) -> (u64, usize) {
        let mut events = events(grants);
        let judged = line.record(&mut events);
        let rules = Rules::mutex().at_least(0).overtaken_at_most(0);
        (judged, check(&History { events }, &rules).violations.len())
    }

    fn line(places: &[(&str, u64)]) -> Line {
        let place = |(label, at): &(&str, u64)| Place { label: (*label).to_owned(), at_us: at * MS };
        Line { places: places.iter().map(place).collect(), is_behind_a_death: false }
    }

    #[test]
    fn a_waiter_that_was_overtaken_is_found() {
        let line = line(&[("c1.1", 20), ("c2.1", 40), ("c1.1", 60)]);
        let holder = ("c0.1/t1", 0, 1, 100);
        let in_order = [holder, ("c1.1/t1", 11, 101, 120), ("c2.1/t1", 31, 121, 140), ("c1.1/t2", 51, 141, 160)];
        assert_eq!(judge(&line, &in_order), (3, 0));
        let second = [holder, ("c2.1/t1", 31, 101, 120), ("c1.1/t1", 11, 121, 140), ("c1.1/t2", 51, 141, 160)];
        assert_eq!(judge(&line, &second), (3, 1));
        // A call that was not seen to wait is not judged, and neither is one of another name.
        assert_eq!(judge(&line, &[holder, ("c3.1/t1", 11, 121, 140)]), (0, 0));
    }

    #[test]
    fn a_waiter_whose_claim_has_ended_has_lost_its_turn() {
        let mut line = line(&[("c1.1", 20), ("c2.1", 40)]);
        let late = [("c0.1/t1", 0, 1, 100), ("c2.1/t1", 31, 1_101, 1_120), ("c1.1/t1", 11, 1_121, 1_140)];
        assert_eq!(judge(&line, &late), (0, 0));
        // The lease of a dead holder has to end first.
        line.is_behind_a_death = true;
        assert_eq!(judge(&line, &late), (2, 1));
    }
}
