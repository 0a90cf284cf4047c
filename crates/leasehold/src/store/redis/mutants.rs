//! Seeded flaws in the scripts: each breaks one rule by one replacement, so that a test can show that it would notice.

use leasehold_spec::mutant::named;

/// The name of the flaw, the file that it is in, what is replaced, and by what.
pub(super) const PATCHES: &[(&str, &str, &str, &str)] = &[
    ("lua-p3-release-once", "release", "(state == 'F' and id or prev) == who", "false"),
    ("lua-p6-grants-detached", "release", "redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0", "true"),
    ("lua-p7-no-claim", "release", "if lease < claim then claim = lease end", "claim = lease"),
    ("lua-p8-no-memory", "release", "#!lua flags=allow-oom", "#!lua"),
];

/// A script with the flaw that the environment names, if it is one of this script.
pub(super) fn patched(script: &str, source: String) -> String {
    let Some(patch) = PATCHES.iter().find(|patch| named() == Some(patch.0)) else { return source };
    apply(patch, script, source)
}

fn apply(&(name, file, find, replace): &(&str, &str, &str, &str), script: &str, source: String) -> String {
    if file != script {
        return source;
    }
    assert_eq!(source.matches(find).count(), 1, "{name}: {find:?} is to occur once in {script}");
    source.replace(find, replace)
}
