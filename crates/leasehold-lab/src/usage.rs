//! The help text, and the commands that play a run again.

use std::process::ExitCode;

use leasehold_spec::mutant;

/// The text of `leasehold-lab --help`.
const HELP: &str = "\
Leasehold's laboratory: it tries to break what Leasehold promises. crates/leasehold-lab/README.md says what each layer
is for, and what it cannot see.

leasehold-lab sim: sessions, the public API and a store under virtual time
  --seeds N           play N seeds, on every core [1000]
  --from S            begin with seed S [1]
  --minutes M         begin no seed after M minutes of real time; without --seeds, as many seeds as there is time for
  --json              after the output, the figures as a line of JSON
  --seed S [-v]       this seed alone; with -v each step in words, after its time in seconds
  --mutant NAME|all   after how many seeds is this seeded flaw found? With --seeds and --from
  --quorum            a quorum of three or five nodes in place of the one server; with all of the above

leasehold-lab bytes: the same through the real client crate, byte by byte
  --seeds N           play N seeds [300]
  --seed S [-v]       this seed alone, or N seeds from S on; with -v each event, after its time in seconds

leasehold-lab chaos: real processes and servers, killed, frozen and cut; needs redis-server
  --minutes M         for M minutes; from 2 minutes on, every kind of fault must occur [2]
  --seed N            the schedule of faults of this seed; real processes do not repeat themselves [any]
  --store redis|file  which store is broken [redis]
  --quorum            five servers that are a quorum: mostly a minority is broken; all kinds from 4 minutes on
  --json              the figures as JSON

leasehold-lab processes: textbook problems, solved by processes of which one is killed a second; needs redis-server
  --scene NAME        philosophers, readers, buffer, accounts or leader [all]
  --seconds N         for N seconds [60]
  --seed N            the choice of whom to kill, and the choices of the workers [1]
  --store redis|file|URL  the store; a URL must not have a password [redis]
  --markdown          the results as rows of a table

leasehold-lab models: every schedule of small worlds, over the shipped `step`
  --rule P6           only the flaws of this rule
  --scene ghosts      only this scene
  --deep              larger ones; 6 minutes of processor time, 2.3 GB
  -v | --markdown     print each step of each schedule | print tables for a document

leasehold-lab times: how long each public call takes, in each place where it can be made, against its bound
  --stores A,B        of memory, file, redis, rediss, quorum [all]; the last three need redis-server
  --quick             one kind of runtime that connects, and fewer calls of threads

LEASEHOLD_MUTANT=NAME in the environment breaks one rule of the product on purpose; docs/MUTANTS.md and
scripts/mutants.txt have the names. Build this program with RUSTFLAGS=\"--cfg leasehold_lab\".

Exit status: 0 nothing is wrong; 1 something is wrong, or the run proves nothing; 2 the arguments are wrong.
";

/// Every seeded flaw, in the second column.
const FLAWS: &str = include_str!("../../../scripts/mutants.txt");

pub(crate) fn help() -> ExitCode {
    print!("{HELP}");
    ExitCode::SUCCESS
}

/// Reports wrong arguments, and prints the usage.
pub(crate) fn refuse(args: &[String], usages: &[&str]) -> ExitCode {
    if !args.is_empty() {
        eprintln!("leasehold-lab: invalid arguments: leasehold-lab {}", args.join(" "));
    }
    eprintln!("usage: {}\n       leasehold-lab --help", usages.join("\n       "));
    ExitCode::from(2)
}

/// Returns whether the flaw that the environment names exists, or none is named. An unknown flaw would change nothing,
/// so no run could find it.
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

/// Returns the command that plays this again, with the active flaw.
pub(crate) fn replay(args: &str) -> String {
    replay_with(mutant::named(), args)
}

/// Returns the command that plays this again, with this flaw.
pub(crate) fn replay_with(flaw: Option<&str>, args: &str) -> String {
    let flaw = flaw.map(|name| format!("LEASEHOLD_MUTANT={name} ")).unwrap_or_default();
    let profile = if cfg!(debug_assertions) { "" } else { " --release" };
    format!("RUSTFLAGS=\"--cfg leasehold_lab\" {flaw}cargo run{profile} -p leasehold-lab -- {args}")
}

/// Ends the process quietly when the reader of the output stops reading (`| head`), so that no panic is printed. Not
/// for chaos, which has processes to end first.
pub(crate) fn end_with_the_reader() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let is_unread = |what: &String| what.starts_with("failed printing to std") && what.contains("os error 32");
        if info.payload().downcast_ref().is_some_and(is_unread) {
            // A shell reports this status for a process that SIGPIPE ended.
            std::process::exit(141);
        }
        usual(info);
    }));
}
