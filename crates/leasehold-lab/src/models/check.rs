//! Runs.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use leasehold_spec::mutant::Mutant;
use stateright::{Checker, HasDiscoveries, Model};

use super::rules::{Botch, Off, Slip};
use super::scenes;
use super::world::{Act, Play};

const OFFS: &[Off] = &[
    Off::Store(Mutant::P1Barging),
    Off::Store(Mutant::P2RepeatExtends),
    Off::Store(Mutant::P2WholeLease),
    Off::Store(Mutant::P3ForgetsRelease),
    Off::Store(Mutant::P3RenewByAnyone),
    Off::Session(Slip::RetryIsNew),
    Off::Session(Slip::LastWordWins),
    Off::Store(Mutant::P4RunsLate),
    Off::Store(Mutant::P5WakeOnly),
    Off::Store(Mutant::P6GrantsDetached),
    Off::Store(Mutant::P6LosesPlace),
    Off::Store(Mutant::P7NoClaim),
    Off::Store(Mutant::P7ForgetsLapse),
    Off::Session(Slip::NobodyLooks),
    Off::Script(Botch::WritesThenFails),
    Off::Script(Botch::ReleaseNeedsMemory),
    Off::Store(Mutant::P9Silent),
    Off::Session(Slip::IgnoresOthers),
    Off::Session(Slip::LeaveOvertakes),
    Off::Session(Slip::FromReceipt),
    Off::Session(Slip::PushFromReceipt),
    Off::Session(Slip::ReleaseOnce),
    Off::Session(Slip::FirstLeave),
    Off::Session(Slip::BarAtAnswer),
    Off::Session(Slip::IgnoresGhost),
    Off::Session(Slip::ClosesEarly),
    Off::Session(Slip::NoLook),
    Off::Session(Slip::DropSilent),
    Off::Store(Mutant::P16LeaveKeeps),
    Off::Session(Slip::EntryOfTask),
    Off::Session(Slip::PushToTheDead),
    Off::Session(Slip::ReleaseOnly),
];

pub(crate) fn main() {
    let args: Vec<_> = std::env::args().collect();
    let get = |name: &str| args.iter().position(|a| a == name).map(|i| args[i + 1].clone());
    let secs = get("--secs").map_or(30, |s| s.parse().unwrap());
    for scene in scenes::ALL {
        if get("--scene").is_some_and(|s| s != scene.name) { continue; }
        let all = std::iter::once(&Off::Nothing).chain(OFFS);
        for off in all {
            if get("--off").is_some_and(|s| !format!("{off:?}").contains(&s)) { continue; }
            run(&Play { scene: scene.clone(), off: *off }, secs, args.iter().any(|a| a == "-v"));
        }
    }
}

fn run(play: &Play, secs: u64, verbose: bool) {
    let t = Instant::now();
    play.off.apply();
    let threads = if play.off == Off::Nothing { 2 } else { 1 };
    let checker = play.clone().checker().threads(threads).timeout(Duration::from_secs(secs)).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let cut = if t.elapsed() > Duration::from_secs(secs) { "TIMEOUT" } else { "" };
    println!("{:10} {:40} {:9} depth {:2} {:5.1}s {cut}", play.scene.name, format!("{:?}", play.off), checker.unique_state_count(), checker.max_depth(), t.elapsed().as_secs_f64());
    for (name, path) in checker.discoveries() {
        let acts = path.into_actions();
        if name.starts_with("reach") {
            if play.off == Off::Nothing { println!("  {name}"); }
        } else {
            println!("             VIOLATED in {}: {name}", acts.len());
            if verbose { for line in tell(play, &acts) { println!("      {line}"); } }
        }
    }
}

pub(crate) fn tell(play: &Play, acts: &[Act]) -> Vec<String> {
    let mut world = play.init_states().remove(0);
    let log = RefCell::new(Vec::new());
    for act in acts {
        world.act(play, *act, Some(&log));
    }
    log.into_inner()
}
