//! Checks of a history as a whole: that enough happened in it to prove anything, and that there is no residue.

use super::{Report, Rules, Violation};
use crate::history::{Event, History};

pub(super) fn check(history: &History, rules: &Rules, report: &mut Report) {
    for (what, there_were, wanted) in
        [("grants", report.grants, rules.min_grants), ("grants after waiting", report.queued, rules.min_queued)]
    {
        report.vacuous(what, there_were, wanted);
    }
    throughput(history, rules, report);
    residue(history, rules, report);
}

/// Checks the throughput. etcd refuses a result with too little traffic: a system that does nothing breaks nothing.
fn throughput(history: &History, rules: &Rules, report: &mut Report) {
    let (mut began_us, mut ended_us, mut fault_us) = (u64::MAX, 0, u64::MAX);
    for event in &history.events {
        match event {
            Event::Asked { at_us, .. } => began_us = began_us.min(*at_us),
            Event::Granted { asked_us, granted_us, .. } => {
                began_us = began_us.min(*asked_us);
                ended_us = ended_us.max(*granted_us);
            }
            Event::GaveUp { at_us, .. } => ended_us = ended_us.max(*at_us),
            Event::Injected { at_us, .. } | Event::Fault { from_us: at_us, .. } => fault_us = fault_us.min(*at_us),
            _ => {}
        }
    }
    let until_us = ended_us.min(fault_us);
    let is_before = |event: &&Event| matches!(event, Event::Granted { granted_us, .. } if *granted_us <= until_us);
    report.whole_us = until_us.saturating_sub(began_us);
    report.grants_while_whole = history.events.iter().filter(is_before).count() as u64;
    let Some(rate) = rules.min_rate else { return };
    report.vacuous("µs before the first fault", report.whole_us, rate.per_us);
    let wanted = u128::from(rate.grants) * u128::from(report.whole_us) / u128::from(rate.per_us);
    let wanted = u64::try_from(wanted).unwrap_or(u64::MAX).max(rate.grants);
    report.vacuous("grants before the first fault", report.grants_while_whole, wanted);
}

fn residue(history: &History, rules: &Rules, report: &mut Report) {
    let mut looked_for = Vec::new();
    for event in &history.events {
        let Event::Residue { what, count } = event else { continue };
        looked_for.push(what.as_str());
        if *count > 0 {
            report.violations.push(Violation::Residue { what: what.clone(), count: *count });
        }
    }
    let forgotten = rules.looked_for.iter().filter(|what| !looked_for.contains(what));
    report.violations.extend(forgotten.map(|what| Violation::NotLookedFor { what }));
}
