//! Faults of clients: they die, pause and starve.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::super::client::RUNTIMES;
use super::super::fleet::{CLIENTS, ClientId, is_keeper};
use super::super::kind::Kind;
use super::super::plan::Strike;
use super::super::process::{BURN, us};
use super::{End, Nemesis};
use leasehold_testkit::Random;

/// Twice the processors of a small machine.
const BURNERS: usize = 4;

/// How long the lab looks for a holder of the hottest lock.
const SEARCH: Duration = Duration::from_millis(500);

impl Nemesis<'_> {
    pub(super) fn clients(&mut self, strike: &Strike, dice: &mut Random) -> Option<End> {
        let kind = strike.kind;
        match kind {
            Kind::Starve => Some(self.starve(strike)),
            Kind::KillClient | Kind::KillHolder => {
                let who = self.victim(kind, dice)?;
                let dead = self.stage.fleet.kill(who)?;
                self.ledger.died(dead);
                self.ledger.note(kind, &format!("client {} for {} ms", who.slot, strike.for_ms));
                self.ledger.struck(kind);
                Some(Box::new(move |stage, _| stage.fleet.revive(who.slot)))
            }
            Kind::StopClient | Kind::StopHolder => {
                let who = self.victim(kind, dice)?;
                self.stage.fleet.stop(who);
                self.ledger.note(kind, &format!("client {} for {} ms", who.slot, strike.for_ms));
                self.ledger.struck(kind);
                Some(Box::new(move |stage, _| stage.fleet.cont(who)))
            }
            Kind::BlockRuntime | Kind::EndRuntime => {
                let who = self.victim(kind, dice)?;
                self.disturb_runtime(strike, who, dice.index(RUNTIMES));
                None
            }
            _ => unreachable!("{kind:?} does not strike clients, or comes alone"),
        }
    }

    /// Returns the holder of the hottest lock, or any client. Keepers are not killed.
    fn victim(&mut self, kind: Kind, dice: &mut Random) -> Option<ClientId> {
        let may_be = |slot: usize| !matches!(kind, Kind::KillClient | Kind::KillHolder) || !is_keeper(slot);
        if matches!(kind, Kind::KillHolder | Kind::StopHolder) {
            let hot = self.names.hot();
            let holder = || self.stage.fleet.labelled(&self.stage.holder(&hot)?).filter(|who| may_be(who.slot));
            let deadline = Instant::now() + SEARCH;
            loop {
                let (found, is_late) = (holder(), Instant::now() >= deadline);
                if found.is_some() || is_late {
                    return found;
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        let first = dice.index(CLIENTS);
        let mut slots = (first..first + CLIENTS).map(|slot| slot % CLIENTS).filter(|slot| may_be(*slot));
        slots.find_map(|slot| self.stage.fleet.running(slot))
    }

    fn starve(&mut self, strike: &Strike) -> End {
        let burner = || {
            let ms = strike.for_ms.to_string();
            us().args([BURN, &ms]).stdin(Stdio::null()).spawn().expect("the lab can start itself")
        };
        let burners: Vec<_> = (0..BURNERS).map(|_| burner()).collect();
        self.ledger.note(strike.kind, &format!("for {} ms", strike.for_ms));
        self.ledger.struck(strike.kind);
        Box::new(move |_, _| {
            for mut burner in burners {
                // The process ends by itself, or by the kill, whichever comes first.
                let _ = burner.kill();
                let _ = burner.wait();
            }
        })
    }
}
