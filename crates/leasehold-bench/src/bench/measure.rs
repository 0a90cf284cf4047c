//! One run of a crew, and its figures.

use std::time::Instant;

use super::{Entrant, Place, about, command};
use crate::crew::Crew;
use crate::error::Result;
use crate::monitor::Direct;
use crate::nodes::NODES;
use crate::peers::Peers;
use crate::record::{Attempts, Row};
use crate::scenario::{Case, counter_key};
use crate::stats::{Fairness, Waits};
use crate::store::Cost;
use crate::system::System;
use crate::worker::{Grants, Report};

pub(super) async fn measure(
    place: &mut Place,
    peers: &Peers,
    entrant: &Entrant,
    run: u32,
    direct: &Direct,
) -> Result<Row> {
    let Entrant { system, case } = entrant;
    let about = about(system, run)?;
    let spec = place.spec(entrant, case, &about);
    let mut crew = Crew::muster(case.processes, &spec, || command(peers, system)).await?;
    let before = place.cost(case.scenario).await?;
    let began = Instant::now();
    let reports = crew.go().await?;
    let took_us = began.elapsed().as_micros() as f64;
    // Before the workers end: their last releases are not part of the run.
    let cost = place.cost(case.scenario).await?.since(&before);
    crew.end().await?;

    let pairs: u64 = reports.iter().map(|report| report.pairs).sum();
    let mut row = figures(entrant, run, &reports)?;
    row.server_us_per_op = direct.server_us(&cost) / pairs as f64;
    row.charge(&cost, pairs, took_us);
    row.attempts = attempts(entrant, &reports, &cost);
    let local_count: Option<u64> = reports.iter().map(|report| report.local_count).sum();
    row.lost_updates = match spec.counter {
        Some(_) => {
            let writes: u64 = reports.iter().map(|report| report.writes.unwrap_or(report.pairs)).sum();
            let overlaps: u64 = reports.iter().filter_map(|report| report.overlaps).sum();
            Some(writes.abs_diff(place.store.take_counter(&counter_key(&about)).await?) + overlaps)
        }
        None => local_count.map(|count| pairs.abs_diff(count)),
    };
    Ok(row)
}

/// Returns the rounds for a grant: by Leasehold's own count, or by the servers'. A peer of a quorum sends one SET for
/// each.
fn attempts(entrant: &Entrant, reports: &[Report], cost: &Cost) -> Option<Attempts> {
    let Entrant { system, case } = entrant;
    if !case.scenario.is_of_quorum() {
        return None;
    }
    if system.own().is_none() {
        let pairs: u64 = reports.iter().map(|report| report.pairs).sum();
        let mean = cost.of("set").calls as f64 / (NODES as u64 * pairs) as f64;
        return Some(Attempts { mean, p50: None, p99: None, max: None });
    }
    let mut rounds = Waits::default();
    reports.iter().filter_map(|report| report.attempts.as_ref()).for_each(|packed| rounds.merge(&Waits::from(packed)));
    let at = |percentile| Some(rounds.percentile_us(percentile));
    let all = Attempts { mean: rounds.mean_us(), p50: at(50.0), p99: at(99.0), max: Some(rounds.max_us()) };
    (!rounds.is_empty()).then_some(all)
}

/// Merges the reports of the workers.
fn figures(entrant: &Entrant, run: u32, reports: &[Report]) -> Result<Row> {
    let served: Vec<u64> = reports.iter().flat_map(|report| report.served.iter().copied()).collect();
    let pairs: u64 = reports.iter().map(|report| report.pairs).sum();
    let counted_us = reports.iter().map(|report| report.counted_us).max().unwrap_or(0);
    let ops: u64 = served.iter().sum();
    let lost_leases: Option<u64> = reports.iter().map(|report| report.lost_leases).sum();
    if (ops == 0 && lost_leases.is_none()) || counted_us == 0 {
        return Err("nothing was counted: give it more --seconds".into());
    }
    let mut waits = Waits::default();
    reports.iter().for_each(|report| waits.merge(&Waits::from(&report.waits)));
    let grants = |figure: fn(&Grants) -> u64| {
        let all: Option<u64> = reports.iter().map(|report| report.grants.as_ref().map(figure)).sum();
        all.map(|all| all as f64 / pairs as f64)
    };
    let cpu_us: u64 = reports.iter().map(|report| report.cpu_us).sum();
    Ok(Row {
        ops,
        ops_per_s: ops as f64 * 1e6 / counted_us as f64,
        fairness: Fairness::of(&served),
        store_grants_per_op: grants(|grants| grants.by_store),
        local_runs_per_op: grants(|grants| grants.local_runs),
        client_cpu_us_per_op: cpu_us as f64 / pairs as f64,
        lost_leases,
        ..Row::of_waits(entrant.system.clone(), entrant.case.clone(), run, &waits)
    })
}

impl Row {
    /// Returns a row with waits and nothing else.
    pub(super) fn of_waits(system: System, case: Case, run: u32, waits: &Waits) -> Self {
        let percentile = |percentile| (!waits.is_empty()).then(|| waits.percentile_us(percentile));
        Self {
            system,
            case,
            run,
            ops: 0,
            ops_per_s: 0.0,
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
            p999_us: percentile(99.9),
            max_us: (!waits.is_empty()).then(|| waits.max_us()),
            mean_us: (!waits.is_empty()).then(|| waits.mean_us()),
            fairness: None,
            server_us_per_op: 0.0,
            server_calls_per_op: 0.0,
            publishes_per_op: 0.0,
            store_grants_per_op: None,
            local_runs_per_op: None,
            attempts: None,
            server_cpu_us_per_op: 0.0,
            client_cpu_us_per_op: 0.0,
            server_core_share: 0.0,
            client_core_share: 0.0,
            lost_updates: None,
            lost_leases: None,
        }
    }

    /// Adds the work of the server for this many pairs in this time.
    pub(super) fn charge(&mut self, cost: &Cost, pairs: u64, took_us: f64) {
        let each = |sum: u64| sum as f64 / pairs as f64;
        self.server_calls_per_op = each(cost.scripts().calls);
        self.publishes_per_op = each(cost.of("publish").calls + cost.of("spublish").calls);
        self.server_cpu_us_per_op = each(cost.cpu_us);
        self.server_core_share = cost.cpu_us as f64 / took_us;
        self.client_core_share = self.client_cpu_us_per_op * pairs as f64 / took_us;
    }
}
