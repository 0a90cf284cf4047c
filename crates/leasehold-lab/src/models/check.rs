//! Runs.

use std::cell::RefCell;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::rules::Off;
use super::world::{Act, Play};
use super::{cases, scenes};

pub(crate) fn main() {
    let args: Vec<_> = std::env::args().collect();
    let get = |name: &str| args.iter().position(|a| a == name).map(|i| args[i + 1].clone());
    let verbose = args.iter().any(|a| a == "-v");
    let t = Instant::now();
    if !args.iter().any(|a| a == "--flaws") {
        for scene in scenes::ALL {
            if get("--scene").is_some_and(|s| s != scene.name) {
                continue;
            }
            run("all", "", &Play::new(scene.clone(), Off::Nothing, None), verbose);
        }
    }
    println!("{:?}", t.elapsed());
    if !args.iter().any(|a| a == "--scenes") {
        for case in cases::ALL {
            if get("--only").is_some_and(|s| s != case.rule) {
                continue;
            }
            run(case.rule, case.flaw, &Play::new(case.scene.clone(), case.off, Some(case.harm)), verbose);
        }
    }
    println!("{:?}", t.elapsed());
}

fn run(rule: &str, flaw: &str, play: &Play, verbose: bool) {
    let t = Instant::now();
    play.off.apply();
    let threads = if play.off == Off::Nothing { 2 } else { 1 };
    let checker = play.clone().checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    println!(
        "{rule:4} {flaw:50} {:10} {:9} depth {:2} {:5.1}s",
        play.scene.name,
        checker.unique_state_count(),
        checker.max_depth(),
        t.elapsed().as_secs_f64()
    );
    let mut reached = 0;
    let mut bad = false;
    for (name, path) in checker.discoveries() {
        let acts = path.into_actions();
        if checker.discovery_classification(name).to_string() == "example" {
            reached += 1;
        } else {
            bad = true;
            println!("             VIOLATED in {}: {name}", acts.len());
            if verbose {
                for line in tell(play, &acts) {
                    println!("      {line}");
                }
            }
        }
    }
    if play.off == Off::Nothing {
        if reached < 3 {
            println!("             REACHED {reached}");
        }
    } else if !bad {
        println!("             NOTHING FOUND");
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
