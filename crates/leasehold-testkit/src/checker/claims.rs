//! Exclusion: at no time do the claimed units exceed the limit. An exclusive grant takes the whole limit, so no other grant
//! is allowed beside it. Shared grants may overlap, as long as there are units left.

use std::collections::BTreeSet;

use super::{Grant, Lock, Report, Rules, Violation};
use crate::history::Promise;

pub(super) fn check(lock: &Lock<'_>, rules: &Rules, report: &mut Report) {
    let claimed = lock.grants.iter().enumerate().filter(|(_, grant)| grant.is_claimed());
    // Of two events in the same microsecond the end comes before the beginning: a hand-over may be as fast as that.
    let mut moments: Vec<(u64, Moment, usize)> = claimed
        .flat_map(|(i, grant)| [(grant.granted_us, Moment::Begins, i), (grant.claimed_us, Moment::Ends, i)])
        .collect();
    moments.sort_unstable();

    let limit = rules.limit_of(lock.name);
    let taken = |grant: &Grant<'_>| u64::from(grant.share.units(limit));
    let mut units = 0u64;
    // The current claims, ordered by their ends: a new claim overlaps with the last of them for the longest time.
    let mut now: BTreeSet<(u64, usize)> = BTreeSet::new();
    for (_, moment, i) in moments {
        let grant = &lock.grants[i];
        match moment {
            Moment::Ends => {
                units -= taken(grant);
                now.remove(&(grant.claimed_us, i));
            }
            Moment::Begins => {
                units += taken(grant);
                if units > u64::from(limit) {
                    found(lock, now.last().map(|&(_, other)| &lock.grants[other]), grant, report);
                }
                now.insert((grant.claimed_us, i));
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Ends,
    Begins,
}

fn found(lock: &Lock<'_>, earlier: Option<&Grant<'_>>, later: &Grant<'_>, report: &mut Report) {
    // A single grant exceeds the limit if it took more units than there are: then it overlaps with itself.
    let earlier = earlier.unwrap_or(later);
    let (from_us, to_us) = (later.granted_us, later.claimed_us.min(earlier.claimed_us));
    let excuse = lock.excuse(Promise::Exclusion, from_us, to_us);
    let violation = Violation::Overlap {
        name: lock.name.into(),
        tokens: [earlier.token, later.token],
        clients: [earlier.client.into(), later.client.into()],
        from_us,
        to_us,
    };
    report.found(violation, excuse);
}
