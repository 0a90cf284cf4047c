//! Bad store URLs: each message names the source of the URL and the mistake. It does not repeat the URL.

use std::process::Output;

use leasehold_testkit::process;

const VERBS: [&[&str]; 5] =
    [&["inspect", "job"], &["ls"], &["revoke", "job"], &["quorum", "begin"], &["run", "job", "--", "true"]];

/// Each URL, and the beginning of the message about it.
const BAD: [(&str, &str); 9] = [
    ("sentinel", "unknown store type in the URL: use redis://HOST:PORT"),
    ("sentinel:6379", "unknown store type in the URL: if this is HOST:PORT, put redis:// in front of it"),
    ("10.0.0.7:6379", "unknown store type in the URL: if this is HOST:PORT, put redis:// in front of it"),
    ("[::1]:6379", "unknown store type in the URL: if this is HOST:PORT, put redis:// in front of it"),
    ("http://sentinel", "unknown store type \"http:\" in the URL: use redis://HOST:PORT"),
    ("redis+sentinel://sentinel", "redis+sentinel: "),
    ("unix:/sentinel", "Unix sockets are not supported"),
    ("redis://sentinel/one", "the path of the URL is not a database number"),
    ("memory:sentinel", "memory: "),
];

fn leasehold(arguments: &[&str], variable: Option<&str>) -> Output {
    let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
    command.args(arguments);
    if let Some(url) = variable {
        command.env("LEASEHOLD_STORE", url);
    }
    command.output().expect("the command starts")
}

#[track_caller]
fn assert_refused(output: &Output, begin: &str) {
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]), "{err}");
    assert!(err.starts_with(&format!("leasehold: {begin}")), "{begin}: {err}");
    assert!(!err.replace("redis+sentinel: ", "").contains("sentinel") && err.lines().count() == 1, "{err}");
}

#[test]
fn errors_name_the_source_of_a_bad_url() {
    for verb in VERBS {
        for (url, begin) in BAD {
            let (option, rest) = verb.split_at(1);
            let by_option = leasehold(&[option, &["--store", url], rest].concat(), None);
            assert_refused(&by_option, &format!("invalid --store: {begin}"));
            assert_refused(&leasehold(verb, Some(url)), &format!("invalid LEASEHOLD_STORE: {begin}"));
        }
        assert_refused(&leasehold(verb, Some("")), "invalid LEASEHOLD_STORE: the URL is empty: unset it");
    }
    assert_refused(
        &leasehold(&["ls", "--store", ""], None),
        "invalid --store: the URL is empty: use redis://HOST:PORT",
    );
}

/// The option has priority, so the error names the option.
#[test]
fn errors_name_the_option_if_both_are_set() {
    assert_refused(&leasehold(&["ls", "--store", "bogus"], Some("redis://127.0.0.1:1")), "invalid --store: ");
}
