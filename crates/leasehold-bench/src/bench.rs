//! The runs, in turns: A B, A B, … and never A A, B B, where a slow minute would belong to one system alone.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::crew::Crew;
use crate::error::{Context, Result};
use crate::report::{Report, Row};
use crate::scenario::{Case, counter_key};
use crate::stats::{Fairness, Waits};
use crate::store::Store;
use crate::system::System;

/// What is run: cases, and for each of them which systems take turns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) cases: Vec<(Case, Vec<System>)>,
    pub(crate) runs: u32,
}

impl Plan {
    pub(crate) fn steps(&self) -> u64 {
        self.cases.iter().map(|(_, systems)| systems.len() as u64 * u64::from(self.runs)).sum()
    }
}

/// Carries a plan out, and reports as it goes.
pub(crate) async fn run(plan: &Plan, store: &mut Store, report: &mut Report) -> Result<()> {
    for (case, systems) in &plan.cases {
        for run in 1..=plan.runs {
            for &system in systems {
                report.begin(case, system, run);
                let row = measure(case, system, run, store).await.context(format!(
                    "{}, {}, run {run}",
                    case.title(),
                    system.name()
                ))?;
                report.row(row)?;
            }
        }
        report.end(case)?;
    }
    Ok(())
}

async fn measure(case: &Case, system: System, run: u32, store: &mut Store) -> Result<Row> {
    store.clear().await?;
    let about = about(system, run)?;
    let spec = case.spec(system, store.url(), &about);
    let crew = Crew::muster(case.processes, &spec).await?;
    let before = store.cost().await?;
    let reports = crew.go().await?;
    let cost = store.cost().await?.since(before);

    let served: Vec<u64> = reports.iter().flat_map(|report| report.served.iter().copied()).collect();
    let pairs: u64 = reports.iter().map(|report| report.pairs).sum();
    let counted_us = reports.iter().map(|report| report.counted_us).max().unwrap_or(0);
    let ops: u64 = served.iter().sum();
    if ops == 0 || counted_us == 0 {
        return Err("nothing was counted: give it more --seconds".into());
    }
    let mut waits = Waits::default();
    reports.iter().for_each(|report| waits.merge(&Waits::from(&report.waits)));
    let lost_updates = match spec.counter {
        Some(_) => Some(pairs.abs_diff(store.take_counter(&counter_key(&about)).await?)),
        None => None,
    };
    Ok(Row {
        record: "run",
        scenario: case.scenario,
        system,
        names: case.names,
        processes: case.processes,
        tasks: case.tasks,
        threads: case.threads,
        run,
        ops,
        ops_per_s: ops as f64 * 1e6 / counted_us as f64,
        p50_us: waits.percentile_us(50.0),
        p99_us: waits.percentile_us(99.0),
        p999_us: waits.percentile_us(99.9),
        max_us: waits.max_us(),
        fairness: Fairness::of(&served),
        server_us_per_op: cost.scripts_us as f64 / pairs as f64,
        server_calls_per_op: cost.scripts as f64 / pairs as f64,
        server_cpu_us_per_op: cost.cpu_us as f64 / pairs as f64,
        client_cpu_us_per_op: reports.iter().map(|report| report.cpu_us).sum::<u64>() as f64 / pairs as f64,
        lost_updates,
    })
}

/// A name for one run's keys that no other run has.
fn about(system: System, run: u32) -> Result<String> {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).context("reading the clock")?;
    Ok(format!("{}{run}-{:x}", system.name(), wall.as_micros()))
}
