//! What the command says of itself, and of how a run is played again.

use std::process::ExitCode;

use leasehold_spec::mutant;

/// `leasehold-lab --help`.
const HELP: &str = "\
Leasehold's laboratory: it tries to break what Leasehold promises. crates/leasehold-lab/README.md says what each layer
is for, and what it cannot see.

leasehold-lab sim: sessions, faces and a store under virtual time
  --seeds N           play N seeds, on every core [1000]
  --from S            beginning with seed S [1]
  --minutes M         begin no seed after M minutes of real time; without --seeds, as many seeds as there is time for
  --json              the figures once more, as a line of JSON, after the others
  --seed S [-v]       this seed alone; with -v each step in words, after its time in seconds
  --mutant NAME|all   after how many seeds is this seeded flaw found? With --seeds and --from
  --quorum            a quorum of three or five nodes in place of the one server; with all of the above

leasehold-lab bytes: the same through the real client crate, byte by byte
  --seeds N           play N seeds [300]
  --seed S [-v]       this seed alone, or N seeds from S on; with -v each event, after its time in seconds

leasehold-lab chaos: real processes and servers, killed, frozen and cut; needs redis-server
  --minutes M         for M minutes; from 2 on it has to meet every kind of fault [2]
  --seed N            the schedule of faults of this seed; real processes do not repeat themselves [any]
  --store redis|file  which store is broken [redis]
  --quorum            five servers that are a quorum: mostly a minority is broken; all kinds from 4 minutes on
  --json              the figures as JSON

leasehold-lab models: every schedule of small worlds, over the shipped `step`
  --rule P6           only the flaws of this rule
  --scene ghosts      only this scene
  --deep              larger ones; 6 minutes of processor time, 2.3 GB
  -v | --markdown     each schedule step by step, in words | tables for a document

leasehold-lab times: how long each public call takes, in each place where it can be made, against its bound
  --stores A,B        of memory, file, redis, rediss, quorum [all]; the last three need redis-server
  --quick             one kind of runtime that connects, and fewer calls of threads

LEASEHOLD_MUTANT=NAME in the environment breaks one rule of the product on purpose; docs/MUTANTS.md and
scripts/mutants.txt have the names. Build this program with RUSTFLAGS=\"--cfg leasehold_lab\".

Exit status: 0 nothing is wrong; 1 something is, or the run proves nothing; 2 it was called wrongly.
";

/// Every seeded flaw, in its second column.
const FLAWS: &str = include_str!("../../../scripts/mutants.txt");

pub(crate) fn help() -> ExitCode {
    print!("{HELP}");
    ExitCode::SUCCESS
}

/// It was called wrongly: like this.
pub(crate) fn refuse(said: &[String], usages: &[&str]) -> ExitCode {
    if !said.is_empty() {
        eprintln!("leasehold-lab: this is not understood: leasehold-lab {}", said.join(" "));
    }
    eprintln!("usage: {}\n       leasehold-lab --help", usages.join("\n       "));
    ExitCode::from(2)
}

/// Whether the environment names a flaw that there is, if any. One that nothing knows would be noticed by nothing.
pub(crate) fn is_flaw_known() -> bool {
    let Some(name) = mutant::named() else { return true };
    let is_known = flaws().any(|flaw| flaw == name);
    match is_known {
        true => eprintln!("leasehold-lab: LEASEHOLD_MUTANT={name}: the product is broken on purpose"),
        false => eprintln!("leasehold-lab: LEASEHOLD_MUTANT={name}: no flaw in scripts/mutants.txt has this name"),
    }
    is_known
}

fn flaws() -> impl Iterator<Item = &'static str> {
    FLAWS.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_whitespace().nth(1))
}

/// The command that plays this again, with the flaw that is on.
pub(crate) fn replay(args: &str) -> String {
    replay_with(mutant::named(), args)
}

/// The same, with this flaw.
pub(crate) fn replay_with(flaw: Option<&str>, args: &str) -> String {
    let flaw = flaw.map(|name| format!("LEASEHOLD_MUTANT={name} ")).unwrap_or_default();
    let profile = if cfg!(debug_assertions) { "" } else { " --release" };
    format!("RUSTFLAGS=\"--cfg leasehold_lab\" {flaw}cargo run{profile} -p leasehold-lab -- {args}")
}

/// Whoever reads what we print may stop reading (`| head`): that is the end, and no panic that anybody has to see. Not
/// for chaos, which has processes to end first.
pub(crate) fn end_with_the_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_unread = |what: &String| what.starts_with("failed printing to std") && what.contains("os error 32");
        if info.payload().downcast_ref().is_some_and(is_unread) {
            // What a shell says of whoever a SIGPIPE ended.
            std::process::exit(141);
        }
        usual(info);
    }));
}
