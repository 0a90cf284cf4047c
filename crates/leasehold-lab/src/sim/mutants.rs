//! Seeded flaws: after how many seeds the simulation finds each.

use std::process::ExitCode;

use leasehold_spec::mutant::{Mutant, switch};

use super::options::Options;
use super::report::{Total, When, play_all};
use crate::usage::replay_with;

/// The flaws that the simulation must find. The others need something that it does not have: a file, a command, a fence
/// of the crate's own, a poller.
pub(super) const ALL: &[Mutant] = &[
    Mutant::P1Barging,
    Mutant::P1Unbounded,
    Mutant::P1FutureStays,
    Mutant::P2RepeatExtends,
    Mutant::P2WholeLease,
    Mutant::P3ForgetsRelease,
    Mutant::P3RenewByAnyone,
    Mutant::P3OlderWins,
    Mutant::P4RunsLate,
    Mutant::P5WakeOnly,
    Mutant::P6GrantsDetached,
    Mutant::P6LosesPlace,
    Mutant::P7NoClaim,
    Mutant::P7ForgetsLapse,
    Mutant::P9Silent,
    Mutant::P10NoGrace,
    Mutant::P10Unheard,
    Mutant::P10TellsNoWaiter,
    Mutant::P10WaitsOn,
    Mutant::P11NoProof,
    Mutant::P11LeaveOvertakes,
    Mutant::P12FromReceipt,
    Mutant::P12PushFromReceipt,
    Mutant::P12NoJump,
    Mutant::P13ReleaseOnce,
    Mutant::P14FirstLeave,
    Mutant::P14IgnoresGhost,
    Mutant::P15NoRecheck,
    Mutant::P16DropSilent,
    Mutant::P16LeaveKeeps,
    Mutant::P16ReentersLost,
    Mutant::P16NoTurns,
    Mutant::P16InnerReleases,
    Mutant::P9TellsNoHolder,
    Mutant::P19BurnsNothing,
    Mutant::P19IgnoresUsed,
    Mutant::P19TokenStays,
    Mutant::P19BeyondRange,
    Mutant::P19ForgetsUsed,
    Mutant::P19ReservesForAll,
    Mutant::P19RunsAhead,
    Mutant::P19BurntIsSuccessor,
    Mutant::P20NeverEnds,
    Mutant::P20IgnoresStrict,
    Mutant::P20PassesLate,
    Mutant::P20Unwanted,
    Mutant::P20PassesPanic,
    Mutant::P20RenewsLate,
    Mutant::P21WaitsForGuard,
    Mutant::P21GrantStays,
    Mutant::P21WaitsOn,
    Mutant::P23RepeatExtends,
    Mutant::P23LeaveEnds,
    Mutant::P23RenewRevives,
    Mutant::P29StartsOnClaim,
    Mutant::P33ServesOne,
    Mutant::P33ComesBackInVain,
    Mutant::P37WaitsForNobody,
    Mutant::P39AdmitsLater,
    Mutant::P41ReleasesFirst,
    Mutant::P42KeepsStock,
    Mutant::P52TripsWithTheDead,
    Mutant::P52TripsEarly,
    Mutant::P52LeadsTwice,
];

/// The flaws that the simulation of a quorum must find.
const OF_QUORUM: &[Mutant] =
    &[Mutant::QVotesBelow, Mutant::QNoRest, Mutant::QFillCounts, Mutant::QTakesLaterVotes, Mutant::P1FutureStays];

/// Searches for a seed that finds a flaw.
pub(super) fn hunt(mutant: Mutant, options: &Options) -> Total {
    switch(mutant);
    let total = play_all(options, When::Failed);
    switch(Mutant::None);
    total
}

pub(super) fn run(name: &str, options: &Options) -> ExitCode {
    let all = if options.is_quorum { OF_QUORUM } else { ALL };
    let chosen: Vec<Mutant> = all.iter().copied().filter(|m| name == "all" || name == format!("{m:?}")).collect();
    if chosen.is_empty() {
        let names: Vec<String> = all.iter().map(|mutant| format!("{mutant:?}")).collect();
        eprintln!("the simulation does not look for a flaw called {name}; it looks for: {}", names.join(", "));
        return ExitCode::from(2);
    }
    let mut survived = 0;
    for mutant in chosen {
        let total = hunt(mutant, options);
        match total.failed.iter().next() {
            Some((seed, (_, wrong))) => {
                println!(
                    "{:<20} found after {:>5} seeds, by seed {seed}: {}",
                    format!("{mutant:?}"),
                    total.seeds,
                    wrong[0]
                );
                if name != "all" {
                    let layer = if options.is_quorum { "sim --quorum" } else { "sim" };
                    println!("  to play it again: {}", replay_with(Some(name), &format!("{layer} --seed {seed} -v")));
                }
            }
            None => {
                survived += 1;
                println!("{:<20} NOT found in {} seeds", format!("{mutant:?}"), total.seeds);
            }
        }
    }
    if survived == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
