//! Arguments that need a whole process.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use leasehold_testkit::process;
use tempfile::TempDir;

/// Runs the command with a store of its own. Returns its status, and what it has printed on standard error.
fn status(arguments: &[&OsStr]) -> (Option<i32>, String) {
    let directory = TempDir::new().expect("a directory");
    let mut command = process::leasehold(env!("CARGO_BIN_EXE_leasehold"));
    let output =
        command.args(arguments).env("LEASEHOLD_STORE", format!("file:{}", directory.path().display())).output();
    let output = output.expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The tips for an unknown option look at all arguments.
#[test]
fn bytes_that_are_no_text_are_a_usage_error() {
    let bytes = OsStr::from_bytes(b"\xff");
    for arguments in [&["run", "--verbose"][..], &["elect", "--verbose"], &["run"], &["elect", "a"], &["unlock"], &[]] {
        let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).chain([bytes]).collect();
        let (status, printed) = status(&arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {printed}");
    }
}

#[test]
fn durations_without_an_end_are_a_usage_error_or_work() {
    for option in ["--wait", "--lease", "--min-hold", "--kill-after"] {
        for duration in ["18446744073709551615s", "584542046090y", "9223372036854775807s", "25h", "1ns", "0s"] {
            let arguments = ["run", "a", option, duration, "--", "true"].map(OsStr::new);
            let (status, printed) = status(&arguments);
            assert!(matches!(status, Some(0 | 2)), "{option} {duration}: {status:?}: {printed}");
        }
    }
}
