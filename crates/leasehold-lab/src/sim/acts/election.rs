//! Elections: candidates wait, lead, change their value, and hand the leadership on to a named candidate. These are acts
//! beside those of the mutex.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex as Lock;

use leasehold::{Election, Leader, Leadership};
use leasehold_testkit::history::Ended;

use super::super::call::Method;
use super::super::exec::lock;
use super::super::plan::{MS, Plan};
use super::super::worker::Worker;
use super::pool::random_wait;
use crate::lease::Lease;

const CAMPAIGN: Method = Method::asks("campaign");
const PUT: Method = Method::asks("put").may_lose();
const HAND: Method = Method::asks("hand_to").may_lose();
const LEADER: Method = Method::asks("leader");

/// Candidates share few values, so that a leader often names one that waits.
const VALUES: u64 = 2;
/// How many times in a row a worker campaigns: a leader can name a successor only while others campaign.
const CANDIDACIES: usize = 4;

/// The values of leaders, by token.
#[derive(Default)]
pub(super) struct Values(Lock<BTreeMap<u64, BTreeSet<String>>>);

impl Values {
    fn may_be(&self, token: u64, value: &str) {
        lock(&self.0).entry(token).or_default().insert(value.to_owned());
    }

    /// Whether the leader with this token has never had this value. The values of a leader whose call has not returned are
    /// not known.
    fn contradict(&self, leader: &Leader) -> bool {
        lock(&self.0).get(&leader.token.get()).is_some_and(|values| !values.contains(&leader.value))
    }
}

/// Returns the election of a plan. All workers take part in the same one.
pub(in super::super) fn name(plan: &Plan) -> String {
    format!("{}: leader", plan.names[0])
}

pub(super) async fn act(worker: &mut Worker) {
    let name = name(&worker.sim.plan);
    for _ in 0..CANDIDACIES {
        let lease = worker.lease();
        let election = worker.leasehold.election(&name).lease(lease);
        read_leader(worker, &election).await;
        campaign(worker, &election, &name).await;
    }
}

async fn campaign(worker: &mut Worker, election: &Election, name: &str) {
    let (value, wait) = (value(worker), random_wait(worker));
    let drops_after_us = if worker.rng.percent(20) { worker.rng.scaled(1, 2_000 * MS) } else { u64::MAX / 2 };
    let call = worker.call(CAMPAIGN.what);
    let result = tokio::select! {
        biased;
        result = election.campaign_for(&value, wait) => result,
        () = worker.sleep(drops_after_us) => return worker.sim.book.count("a dropped candidacy"),
    };
    if let Ok(Some(leadership)) = &result {
        worker.sim.ledgers.values.may_be(leadership.token().get(), &value);
    }
    match result {
        Ok(Some(leadership)) if worker.rng.percent(60) => hand_on(worker, leadership, name, call.began_us).await,
        Ok(Some(leadership)) => worker.section(leadership, name, call.began_us).await,
        Ok(None) => worker.sim.book.count("a candidate that stops waiting"),
        Err(error) => worker.check_result(CAMPAIGN, Some(&error), &call),
    }
}

/// Leads for a while under two values, and hands the leadership on.
async fn hand_on(worker: &mut Worker, leadership: Leadership, name: &str, asked_us: u64) {
    let grant = worker.entered(&leadership, name, asked_us);
    let call = worker.call(PUT.what);
    let next = value(worker);
    worker.sim.ledgers.values.may_be(grant.token, &next);
    let put = leadership.put(&next).await;
    worker.check_result(PUT, put.as_ref().err(), &call);
    let lead_us = worker.rng.scaled(1, 2_000 * MS);
    worker.sleep(lead_us).await;
    // From here on another candidate may lead at any moment.
    let ended =
        Lease::check(&leadership).err().map_or(Ended::Released, |lost| Ended::Lost(format!("{:?}", lost.reason())));
    grant.ended(&worker.sim.book, worker.sim.exec.now_us(), ended);
    let (call, next) = (worker.call(HAND.what), value(worker));
    match leadership.hand_to(&next).await {
        Ok(None) => worker.sim.book.count("a leader that names its successor"),
        Ok(Some(leadership)) => {
            worker.sim.book.count("a leader that finds no successor");
            drop(leadership);
        }
        Err(error) => worker.check_result(HAND, Some(&error), &call),
    }
}

async fn read_leader(worker: &mut Worker, election: &Election) {
    let call = worker.call(LEADER.what);
    match election.leader().await {
        Ok(Some(leader)) if worker.sim.plan.remembers() && worker.sim.ledgers.values.contradict(&leader) => {
            worker.wrong("P48: a leader has a value that it never had");
        }
        Ok(_) => {}
        Err(error) => worker.check_result(LEADER, Some(&error), &call),
    }
}

fn value(worker: &mut Worker) -> String {
    format!("candidate {}", worker.rng.below(VALUES))
}
