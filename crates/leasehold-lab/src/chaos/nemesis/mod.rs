//! Carries a round's plan out. Each fault begins, and most have an end; the repair ends all of them.
//!
//! A command for a server that may be paused runs on a thread of its own, so that the other faults do not wait for it. A
//! fault is counted when it is seen to strike, not when it begins.

mod clients;
mod line;
mod network;
mod server;
mod solo;

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::kind::Target;
use super::ledger::Ledger;
use super::names::Names;
use super::plan::{Round, Strike};
use super::stage::Stage;
use super::stop::{Interrupted, Stop};
use leasehold_testkit::Random;

/// How a fault ends.
type End = Box<dyn FnOnce(&mut Stage, &Ledger)>;

/// The faults of one round.
pub(crate) struct Nemesis<'a> {
    stage: &'a mut Stage,
    ledger: &'a Ledger,
    names: Names,
    commands: Vec<JoinHandle<()>>,
}

impl<'a> Nemesis<'a> {
    pub(crate) fn new(stage: &'a mut Stage, ledger: &'a Ledger, names: Names) -> Self {
        Self { stage, ledger, names, commands: Vec::new() }
    }

    /// Carries the plan out, and repairs everything.
    pub(crate) fn play(mut self, round: &Round, stop: &Stop) -> Result<(), Interrupted> {
        self.line(round.seed, stop)?;
        self.solo(&round.solo, stop)?;
        let begun = Instant::now();
        let mut begins = round.strikes.iter().peekable();
        let mut ends: Vec<(u64, End)> = Vec::new();
        let end_of_all = (round.faults_ms, None);
        loop {
            let begin_ms = begins.peek().map_or(u64::MAX, |strike| strike.at_ms);
            let end = ends.iter().enumerate().min_by_key(|(_, (at_ms, _))| *at_ms).map(|(at, (ms, _))| (*ms, Some(at)));
            let (at_ms, ending) = end.filter(|(ms, _)| *ms < begin_ms).unwrap_or((begin_ms, None)).min(end_of_all);
            stop.sleep_until(begun + Duration::from_millis(at_ms))?;
            match ending {
                Some(at) => ends.remove(at).1(self.stage, self.ledger),
                None => match begins.next_if(|strike| strike.at_ms <= at_ms) {
                    Some(strike) => {
                        let end = self.begin(strike);
                        ends.extend(end.map(|end| (strike.ends_ms(), end)));
                    }
                    None if at_ms >= round.faults_ms => break,
                    None => {}
                },
            }
        }
        ends.sort_by_key(|(at_ms, _)| *at_ms);
        for (_, end) in ends {
            end(self.stage, self.ledger);
        }
        self.heal();
        Ok(())
    }

    fn begin(&mut self, strike: &Strike) -> Option<End> {
        let mut dice = Random::new(strike.dice);
        self.ledger.recorder().injected(&format!("{:?}", strike.kind));
        if strike.kind.target() == Target::Clients {
            return self.clients(strike, &mut dice);
        }
        let each = strike.nodes.iter().filter_map(|at| self.server(strike, at, &mut dice));
        let ends: Vec<End> = each.collect();
        (!ends.is_empty()).then(|| {
            Box::new(move |stage: &mut Stage, ledger: &Ledger| ends.into_iter().for_each(|e| e(stage, ledger))) as End
        })
    }

    /// Begins the fault at one of the servers that it strikes.
    fn server(&mut self, strike: &Strike, at: usize, dice: &mut Random) -> Option<End> {
        match strike.kind.target() {
            Target::ServerProcess => self.server_process(strike, at, dice),
            Target::ServerInside => self.server_inside(strike, at, dice),
            Target::Network => self.network(strike, at, dice),
            Target::Clients => unreachable!("clients are not struck server by server"),
        }
    }

    /// Repairs everything that the end of a fault could not repair.
    fn heal(self) {
        for command in self.commands {
            command.join().expect("a command's thread does not panic");
        }
        self.stage.ground.heal();
        self.ledger.recorder().healed();
    }
}
