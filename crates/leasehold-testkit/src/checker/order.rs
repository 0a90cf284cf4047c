//! Order: of the tokens in time, and of the queue.

use std::collections::BTreeSet;

use super::{Grant, Lock, Report, Rules, Violation};
use crate::history::Promise;

pub(super) fn check(lock: &Lock<'_>, rules: &Rules, report: &mut Report) {
    unique(lock, report);
    // The same pair may violate both orders; it is one violation.
    let mut found = BTreeSet::new();
    for (fall, promises) in real_time(lock).into_iter().chain(order_of_holding(lock, rules)) {
        if found.insert((fall.0.token, fall.1.token)) {
            fell(lock, fall, promises, report);
        }
    }
    overtaking(lock, rules, report);
}

/// Checks that no token was granted twice.
fn unique(lock: &Lock<'_>, report: &mut Report) {
    let mut grants: Vec<&Grant<'_>> = lock.grants.iter().collect();
    grants.sort_by_key(|grant| (grant.token, grant.granted_us));
    for pair in grants.windows(2) {
        let [a, b] = [pair[0], pair[1]];
        if a.token == b.token {
            let excuse = lock.excuse(Promise::Tokens, a.asked_us, b.granted_us);
            let clients = [a.client.into(), b.client.into()];
            report.found(Violation::SameToken { name: lock.name.into(), token: a.token, clients }, excuse);
        }
    }
}

/// An earlier grant with a larger token than the later one.
type Fall<'g, 'a> = (&'g Grant<'a>, &'g Grant<'a>);
/// The promises of which a declared fault must break one for a fall to be excused.
type Promises = &'static [Promise];

fn fell(lock: &Lock<'_>, (earlier, later): Fall<'_, '_>, promises: Promises, report: &mut Report) {
    let violation = Violation::TokenFell {
        name: lock.name.into(),
        earlier: earlier.token,
        later: later.token,
        clients: [earlier.client.into(), later.client.into()],
    };
    let excuse = lock.excuse_any(promises, earlier.asked_us, later.granted_us);
    report.found(violation, excuse);
}

/// Checks that a grant that was complete before an attempt began has the smaller token.
fn real_time<'g, 'a>(lock: &'g Lock<'a>) -> Vec<(Fall<'g, 'a>, Promises)> {
    let mut by_grant: Vec<&Grant<'_>> = lock.grants.iter().collect();
    by_grant.sort_by_key(|grant| grant.granted_us);
    let mut by_attempt = by_grant.clone();
    by_attempt.sort_by_key(|grant| grant.asked_us);

    let mut complete = by_grant.into_iter().peekable();
    let (mut largest, mut falls) = (None, Vec::new());
    for later in by_attempt {
        while let Some(earlier) = complete.next_if(|earlier| earlier.granted_us < later.asked_us) {
            largest = larger(largest, earlier);
        }
        let promises: Promises = &[Promise::Tokens];
        falls.extend(above(largest, later).map(|fall| (fall, promises)));
    }
    falls
}

/// Checks that, of two grants that exclude each other, the one that was claimed first has the smaller token. This finds
/// more than the check of real time: all waiters have asked before any of them is granted. It presumes exclusion: where
/// exclusion is broken, a client that is slow to check its grant may check it after its successor did.
fn order_of_holding<'g, 'a>(lock: &'g Lock<'a>, rules: &Rules) -> Vec<(Fall<'g, 'a>, Promises)> {
    let mut claimed: Vec<&Grant<'_>> = lock.grants.iter().filter(|grant| grant.is_claimed()).collect();
    // Of two grants in the same microsecond neither was first.
    claimed.sort_by_key(|grant| (grant.granted_us, grant.token));
    let limit = rules.limit_of(lock.name);
    let (mut largest, mut largest_exclusive, mut falls) = (None, None, Vec::new());
    for grant in claimed {
        let is_exclusive = grant.share.units(limit) == limit;
        let earlier = if is_exclusive { largest } else { largest_exclusive };
        let promises: Promises = &[Promise::Tokens, Promise::Exclusion];
        falls.extend(above(earlier, grant).map(|fall| (fall, promises)));
        largest = larger(largest, grant);
        if is_exclusive {
            largest_exclusive = larger(largest_exclusive, grant);
        }
    }
    falls
}

fn larger<'g, 'a>(largest: Option<&'g Grant<'a>>, grant: &'g Grant<'a>) -> Option<&'g Grant<'a>> {
    match largest {
        Some(largest) if largest.token >= grant.token => Some(largest),
        _ => Some(grant),
    }
}

fn above<'g, 'a>(earlier: Option<&'g Grant<'a>>, later: &'g Grant<'a>) -> Option<Fall<'g, 'a>> {
    earlier.filter(|earlier| earlier.token > later.token).map(|earlier| (earlier, later))
}

/// Counts how often a waiter was overtaken: by grants with a smaller token whose attempt began when the waiter was known
/// to wait. Where a store has lost its records, a grant can have a smaller token although it began after the wait.
fn overtaking(lock: &Lock<'_>, rules: &Rules, report: &mut Report) {
    let waiters: Vec<(u64, &Grant<'_>)> =
        lock.grants.iter().filter_map(|grant| Some((grant.queued_us?, grant))).collect();
    let since_queued = smaller_tokens(lock, waiters.iter().map(|(queued_us, waiter)| (*queued_us, waiter.token)));
    let since_granted = smaller_tokens(lock, waiters.iter().map(|(_, waiter)| (waiter.granted_us, waiter.token)));
    for ((queued_us, waiter), (earlier, later)) in waiters.into_iter().zip(since_queued.into_iter().zip(since_granted))
    {
        let times = earlier.saturating_sub(later);
        report.overtaken_most = report.overtaken_most.max(times);
        if rules.max_overtaken.is_some_and(|most| times > most) {
            let (name, client) = (lock.name.into(), waiter.client.into());
            let excuse = lock.excuse(Promise::Order, queued_us, waiter.granted_us);
            report.found(Violation::Overtaken { name, client, token: waiter.token, times }, excuse);
        }
    }
}

/// Returns, for each time and token, how many grants have a smaller token and an attempt that began after this time.
fn smaller_tokens(lock: &Lock<'_>, of: impl Iterator<Item = (u64, u64)>) -> Vec<u64> {
    let mut tokens: Vec<u64> = lock.grants.iter().map(|grant| grant.token).collect();
    tokens.sort_unstable();
    let rank = |token: u64| tokens.partition_point(|&t| t < token);
    let mut latest_first: Vec<&Grant<'_>> = lock.grants.iter().collect();
    latest_first.sort_by_key(|grant| std::cmp::Reverse(grant.asked_us));
    let mut questions: Vec<(u64, u64, usize)> = of.enumerate().map(|(nth, (us, token))| (us, token, nth)).collect();
    questions.sort_by_key(|(us, ..)| std::cmp::Reverse(*us));

    let mut answers = vec![0; questions.len()];
    let mut asked_later = Counts::new(tokens.len());
    let mut latest_first = latest_first.into_iter().peekable();
    for (us, token, nth) in questions {
        while let Some(grant) = latest_first.next_if(|grant| grant.asked_us > us) {
            asked_later.add(rank(grant.token));
        }
        answers[nth] = asked_later.below(rank(token));
    }
    answers
}

/// Counts how many of the numbers so far are below another one (a Fenwick tree).
struct Counts(Vec<u64>);

impl Counts {
    fn new(numbers: usize) -> Self {
        Self(vec![0; numbers + 1])
    }

    fn add(&mut self, number: usize) {
        let mut i = number + 1;
        while i < self.0.len() {
            self.0[i] += 1;
            i += i & i.wrapping_neg();
        }
    }

    fn below(&self, number: usize) -> u64 {
        let (mut i, mut count) = (number, 0);
        while i > 0 {
            count += self.0[i];
            i -= i & i.wrapping_neg();
        }
        count
    }
}
