//! Each error as a real server sends it (Redis 7.0.15, unless noted), and its meaning.

use super::*;

const AT: &str = "10.0.0.1:6379";

/// The text of Redis, its meaning, and two pieces of our message.
const SAID: &[(&str, Means, [&str; 2])] = {
    use ErrorKind::{Denied, Foreign, Invalid, Store, Unsupported};
    use Means::{Elsewhere, NoMemory, Refused};
    &[
        ("READONLY You can't write against a read only replica.", Elsewhere, ["replica", "retries"]),
        ("LOADING Redis is loading the dataset in memory", Elsewhere, ["loading", "retries"]),
        (
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            Elsewhere,
            ["without its primary", "promote"],
        ),
        ("CLUSTERDOWN The cluster is down", Elsewhere, ["cluster", "CLUSTER INFO"]),
        ("TRYAGAIN Multiple keys request during rehashing of slot", Elsewhere, ["moving", "wait"]),
        (
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            Elsewhere,
            ["busy", "SCRIPT KILL"],
        ),
        ("NOREPLICAS Not enough good replicas to write.", Elsewhere, ["replicas", "min-replicas-to-write"]),
        (
            "ERR Script killed by user with SCRIPT KILL... script: 694a, on @user_script:1.",
            Elsewhere,
            ["stopped the script", "retries"],
        ),
        ("OOM command not allowed when used memory > 'maxmemory'.", NoMemory, ["out of memory", "raise maxmemory"]),
        (
            "OOM command not allowed when used memory > 'maxmemory'. script: bd6f, on @user_script:1.",
            NoMemory,
            ["out of memory", "raise maxmemory"],
        ),
        (
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands \
             that may modify the data set are disabled, because this instance is configured to report errors during \
             writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for \
             details about the RDB error.",
            Refused(Store),
            ["disk", "log"],
        ),
        ("NOSCRIPT No matching script. Please use EVAL.", Refused(Store), ["does not keep scripts", "proxy"]),
        (
            "WRONGTYPE Operation against a key holding the wrong kind of value script: 4d25, on @user_script:2.",
            Refused(Foreign),
            ["another type", "\"lh1:{a}\""],
        ),
        ("NOAUTH Authentication required.", Refused(Denied), ["URL", "?password_file=/PATH or"]),
        ("WRONGPASS invalid username-password pair or user is disabled.", Refused(Denied), ["password", "user"]),
        (
            "NOPERM this user has no permissions to run the 'evalsha' command",
            Refused(Denied),
            ["'evalsha'", "+evalsha"],
        ),
        (
            "NOPERM this user has no permissions to access one of the channels used as arguments",
            Refused(Denied),
            ["channels", "&PREFIXlh1:inbox:*"],
        ),
        (
            "ERR The user executing the script can't run this command or subcommand script: c9d6, on @user_script:2.",
            Refused(Denied),
            ["script", "+setrange"],
        ),
        (
            "ERR The user executing the script can't access at least one of the keys mentioned in the command \
             arguments script: 5977, on @user_script:2.",
            Refused(Denied),
            ["keys", "~PREFIXlh1:*"],
        ),
        (
            "ERR The user executing the script can't publish to the channel mentioned in the command",
            Refused(Denied),
            ["channel", "+publish"],
        ),
        // 7.2
        (
            "ERR ACL failure in script: User poor has no permissions to run the 'set' command script: c9d6, on \
             @user_script:2.",
            Refused(Denied),
            ["'set'", "+set"],
        ),
        ("NOPERM User poor has no permissions to run the 'evalsha' command", Refused(Denied), ["'evalsha'", "poor"]),
        // The reply to SELECT, as the client crate returns it.
        ("ERR this user has no permissions to run the 'select' command", Refused(Denied), ["'select'", "+select"]),
        ("ERR DB index is out of range", Refused(Invalid), ["database", "smaller"]),
        (
            "ERR user_script:84: attempt to compare nil with number script: 52d9, on @user_script:84.",
            Refused(Foreign),
            ["\"lh1:{a}\"", "delete"],
        ),
        ("ERR unknown command 'EVALSHA', with args beginning with: 'x'", Refused(Unsupported), ["'EVALSHA'", "7.0"]),
        ("MOVED 3999 127.0.0.1:6381", Refused(Unsupported), ["cluster", "single primary"]),
        ("ASK 3999 127.0.0.1:6381", Refused(Unsupported), ["cluster", "single primary"]),
        ("CROSSSLOT Keys in request don't hash to the same slot", Refused(Unsupported), ["cluster", "single primary"]),
        ("ERR syntax error", Refused(Store), ["refused", "syntax error"]),
        ("NEWCODE of a later Redis", Refused(Store), ["refused", "NEWCODE of a later Redis"]),
    ]
};

fn told(said: &str, asker: Asker) -> Trouble {
    let (code, text) = said.split_once(' ').expect("a code and a text");
    Trouble::told(code, text, AT, asker, Some("lh1:{a}"))
}

#[test]
fn every_error_means_what_it_should() {
    for (said, means, words) in SAID {
        let (found, error) = match told(said, Asker::LOCKS) {
            Trouble::Elsewhere(error) => (Means::Elsewhere, error),
            Trouble::NoMemory(error) => (Means::NoMemory, error),
            Trouble::Refused(error) => (Means::Refused(error.kind()), error),
            Trouble::Unanswered(error) => panic!("{said} was answered: {error}"),
        };
        assert_eq!(found, *means, "{said}");
        assert!(!error.may_have_acted(), "{said}");
        for word in words.iter().chain([&AT, said]) {
            assert!(error.to_string().contains(word), "{word:?} is missing in: {error}");
        }
    }
}

#[test]
fn every_row_is_reached() {
    for (at, row) in TABLE.iter().enumerate() {
        let reached = SAID.iter().any(|(said, ..)| {
            let (code, text) = said.split_once(' ').expect("a code and a text");
            TABLE.iter().position(|row| row.0 == code && format!(" {text}").contains(row.1)) == Some(at)
        });
        assert!(reached, "no text that is tried comes to the row {row:?}");
    }
}

#[test]
fn messages_say_what_the_caller_can_do() {
    let loading = "LOADING Redis is loading the dataset in memory";
    for (asker, words) in [
        (Asker::LOCKS, "lock() waits"),
        (Asker::FENCE, "call again"),
        (Asker::LOCKS.connecting(), "connect again"),
        (Asker::FENCE.connecting(), "connect again"),
    ] {
        let error = told(loading, asker).before_asking();
        assert!(error.to_string().contains(words), "{error}");
    }
    let denied = "NOPERM this user has no permissions to run the 'pttl' command";
    assert!(told(denied, Asker::FENCE).before_asking().to_string().contains("+pttl"));
}

#[test]
fn an_error_in_a_batch_is_read_by_the_same_table() {
    let full = of_one("OOM command not allowed when used memory > 'maxmemory'.", AT, Asker::LOCKS, "lh1:{a}");
    assert!(matches!(full, Fault::NoMemory(_)), "{full:?}");
    let lua = of_one("ERR user_script:7: attempt to index a nil value", AT, Asker::LOCKS, "lh1:{a}");
    assert!(matches!(&lua, Fault::Refused(error) if error.kind() == ErrorKind::Foreign), "{lua:?}");
    assert!(matches!(of_one("nonsense", AT, Asker::LOCKS, "lh1:{a}"), Fault::Refused(_)));
}

#[test]
fn after_a_broken_connection_the_request_may_have_acted() {
    let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let trouble = Trouble::of(&broken, AT, Asker::LOCKS, None);
    let Fault::Gone(error) = trouble.into() else { panic!("a broken connection is gone") };
    assert_eq!((error.kind(), error.may_have_acted()), (ErrorKind::Unreachable, true), "{error}");
}
