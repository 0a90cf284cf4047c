//! Random arguments: each vector is a usage error, a page, or a plan. None panics.
//!
//! `LEASEHOLD_FUZZ_CASES` (default 2,000) and `LEASEHOLD_FUZZ_SEED` (default 1) select other input.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::args::{Arguments, Verb};
use crate::exit::Exit;

const VERBS: &[&str] = &[
    "run",
    "elect",
    "inspect",
    "ls",
    "revoke",
    "quorum",
    "completions",
    "man",
    "help",
    "minder",
    "interrupt",
    "place",
    "lock",
    "unlock",
    "list",
];
const OPTIONS: &[&str] = &[
    "--",
    "-",
    "--store",
    "--quiet",
    "-q",
    "--wait",
    "-w",
    "--no-wait",
    "-n",
    "--shared",
    "-s",
    "--exclusive",
    "-x",
    "--limit",
    "--permits",
    "--lease",
    "--min-hold",
    "--kill-after",
    "--conflict-exit-code",
    "-E",
    "--holder",
    "--value",
    "--once",
    "--observe",
    "--json",
    "--all",
    "-a",
    "--token",
    "--grace",
    "--now",
    "--force",
    "--help",
    "-h",
    "--version",
    "-V",
    "--timeout",
    "--ttl",
    "--nonblock",
    "--verbose",
    "--signal",
    "--kill-at",
    "--aside",
    "begin",
    "bash",
];
const VALUES: &[&str] = &[
    "",
    "a",
    "stock:42",
    "true",
    "0",
    "1",
    "-1",
    "255",
    "256",
    "999999",
    "1000000",
    "18446744073709551615",
    "forever",
    "0s",
    "1s",
    "30s",
    "24h",
    "25h",
    "1ns",
    "18446744073709551615s",
    "500000000000y",
    "redis://h",
    "redis://:p@h",
    "file:/tmp/x",
    "file:",
    "memory:",
    "quorum:?node=redis://a&node=redis://b&node=redis://c",
    "withheld:",
    "h:6379",
    "x y",
    "\u{0}",
    "\n",
    "\u{202e}",
    "ä",
];

fn argument() -> impl Strategy<Value = OsString> {
    let known = |words: &'static [&'static str]| select(words).prop_map(OsString::from);
    let joined = (select(OPTIONS), select(VALUES)).prop_map(|(option, value)| format!("{option}={value}").into());
    prop_oneof![
        5 => known(OPTIONS),
        4 => known(VALUES),
        2 => joined,
        1 => "[ -~ä]{0,300}".prop_map(OsString::from),
        1 => vec(any::<u8>(), 0..6).prop_map(OsString::from_vec),
    ]
}

fn anything() -> impl Strategy<Value = Vec<OsString>> {
    let verb = prop_oneof![8 => select(VERBS).prop_map(OsString::from), 1 => argument()];
    (verb, vec(argument(), 0..8)).prop_map(|(verb, mut rest)| {
        rest.splice(..0, ["leasehold".into(), verb]);
        rest
    })
}

/// Returns arguments that lack nothing, with any values.
fn whole() -> impl Strategy<Value = Vec<OsString>> {
    let options = vec((select(OPTIONS), select(VALUES)), 0..4);
    (select(vec!["run", "elect"]), options).prop_map(|(verb, options)| {
        let options = options.into_iter().flat_map(|(option, value)| [option, value]);
        ["leasehold", verb, "a"].into_iter().chain(options).chain(["--", "true"]).map(OsString::from).collect()
    })
}

fn arguments() -> impl Strategy<Value = Vec<OsString>> {
    prop_oneof![anything(), whole()]
}

/// Parses the arguments, and plans as far as that asks no store.
fn check(arguments: &[OsString]) {
    let planned = match Arguments::parse(arguments) {
        Err(error) => {
            let (text, status) = (error.render().to_string(), error.exit_code());
            assert!(
                !text.is_empty() && (status == 2) == error.use_stderr() && [0, 2].contains(&status),
                "{status}: {text}"
            );
            return;
        }
        Ok(Arguments { verb: Verb::Run(args) }) => args.plan().map(drop),
        Ok(Arguments { verb: Verb::Elect(args) }) => args.plan().map(drop),
        Ok(_) => return,
    };
    if let Err(failure) = planned {
        assert_eq!(failure.exit, Exit::Usage, "{failure}");
        assert!(failure.message().is_some_and(|message| !message.is_empty()));
    }
}

#[test]
fn any_arguments_are_a_plan_or_a_usage_error() {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let (seed, cases) =
        (number("LEASEHOLD_FUZZ_SEED").unwrap_or(1_u64), number("LEASEHOLD_FUZZ_CASES").unwrap_or(2_000));
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config =
        Config { cases: u32::try_from(cases).expect("some thousands"), failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let played = runner.run(&arguments(), |arguments| {
        check(&arguments);
        Ok::<_, TestCaseError>(())
    });
    played.unwrap_or_else(|error| panic!("LEASEHOLD_FUZZ_SEED={seed} LEASEHOLD_FUZZ_CASES={cases}: {error}"));
}
