//! Seeded flaws in the scripts: each breaks one rule by one replacement, so that a test can show that it would notice.

use leasehold_spec::mutant::named;

/// The name of the flaw, the file that it is in, what is replaced, and by what.
pub(super) const PATCHES: &[(&str, &str, &str, &str)] = &[];

/// A script with the flaw that the environment names, if it is one of this script.
pub(super) fn patched(script: &str, source: String) -> String {
    let Some(patch) = PATCHES.iter().find(|patch| named() == Some(patch.0)) else { return source };
    apply(patch, script, source)
}

fn apply(&(name, file, find, replace): &(&str, &str, &str, &str), script: &str, source: String) -> String {
    if file != "record" && file != script {
        return source;
    }
    assert_eq!(source.matches(find).count(), 1, "{name}: {find:?} is to occur once in {script}");
    source.replace(find, replace)
}
