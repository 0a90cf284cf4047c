//! Checks that no linter has: long files, names of files that do not exist, rules without a text, dependencies without a
//! reason, circles of imports.
//!
//! A check is a function of text (`checks.rs`, `modules.rs`), with tests which show that it can fail. Here each check
//! is applied to the whole repository. An exception is listed with its reason. An exception that is no longer needed
//! fails, too.

mod checks;
mod modules;
mod tree;

use std::collections::BTreeSet;

use tree::{File, Kind, files};

/// A file that may have more lines than [`checks::FILE_LINES`]: how many at most, and why.
const LONG_FILES: &[(&str, usize, &str)] =
    &[("crates/leasehold-spec/src/mutant/list.rs", 440, "one enum, with two lines for each flaw and no code")];

/// Files that may have lines that are too long: how many at most, and why.
const LONG_LINES: &[(&str, usize, &str)] = &[];

/// The sources in which imports must run down: a path and all that begins with it. To check a whole crate, name its `src/`.
const LAYERED: &[&str] = &["crates/leasehold-spec/src/", "crates/leasehold/src/"];

/// Applies a check to every file, and fails with all its complaints.
#[track_caller]
fn tidy(check: impl Fn(&File) -> Vec<String>) {
    let files = files();
    assert!(files.len() > 100, "only {} files were found: this is not the repository", files.len());
    let complaints: Vec<String> = files.iter().flat_map(check).collect();
    assert!(complaints.is_empty(), "{} complaints:\n{}", complaints.len(), complaints.join("\n"));
}

fn at(file: &File, complaints: Vec<(usize, String)>) -> Vec<String> {
    complaints.into_iter().map(|(line, what)| format!("{}:{line}: {what}", file.path)).collect()
}

#[test]
fn no_source_is_too_long() {
    tidy(|file| {
        let allowed = LONG_FILES.iter().find(|(path, ..)| *path == file.path).map(|(_, lines, _)| *lines);
        let is_source = file.kind == Kind::Rust && file.path.contains("/src/");
        let complaint = if is_source { checks::length(&file.text, allowed) } else { None };
        complaint.map(|what| format!("{}: {what}", file.path)).into_iter().collect()
    });
    assert_exist(LONG_FILES.iter().map(|(path, ..)| *path));
}

#[test]
fn no_line_is_too_long() {
    tidy(|file| {
        let long = if file.kind == Kind::Page { vec![] } else { checks::long_lines(&file.text) };
        match LONG_LINES.iter().find(|(path, ..)| *path == file.path) {
            Some((_, allowed, _)) if long.len() <= *allowed && !long.is_empty() => vec![],
            Some((_, allowed, _)) if long.is_empty() => vec![format!("{}: needs no {allowed} long lines", file.path)],
            _ => at(file, long),
        }
    });
    assert_exist(LONG_LINES.iter().map(|(path, ..)| *path));
}

#[track_caller]
fn assert_exist<'a>(listed: impl Iterator<Item = &'a str>) {
    let files = files();
    for path in listed {
        assert!(files.iter().any(|file| file.path == path), "{path} is an exception and does not exist");
    }
}

#[test]
fn no_line_ends_in_blanks_and_no_code_has_tabs() {
    tidy(|file| {
        let tabs = if file.kind == Kind::Page { vec![] } else { checks::tabs(&file.text) };
        at(file, [checks::trailing_blanks(&file.text), tabs].concat())
    });
}

#[test]
fn nothing_is_left_unfinished() {
    tidy(|file| if file.kind == Kind::Rust { at(file, checks::unfinished(&file.text)) } else { vec![] });
}

#[test]
fn every_ignored_test_has_a_reason() {
    tidy(|file| if file.kind == Kind::Rust { at(file, checks::ignored(&file.text)) } else { vec![] });
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let paths: BTreeSet<String> = files().into_iter().map(|file| file.path).collect();
    tidy(|file| match file.kind {
        Kind::Page => at(file, checks::dead_links(&file.path, &file.text, |path| tree::exists(&paths, path))),
        _ => vec![],
    });
}

#[test]
fn every_named_file_exists() {
    let paths: BTreeSet<String> = files().into_iter().map(|file| file.path).collect();
    let exists = |name: &str| paths.iter().any(|path| path == name || path.ends_with(&format!("/{name}")));
    tidy(|file| at(file, checks::lost_names(&file.text, file.kind, exists)));
}

/// ARCHITECTURE.md names each file of the session, for a reader who follows an acquire through it.
#[test]
fn the_map_has_every_file_of_the_session() {
    let files = files();
    let map = files.iter().find(|file| file.path == "ARCHITECTURE.md").expect("the map is there");
    let names = files.iter().filter_map(|file| file.path.strip_prefix("crates/leasehold/src/session/"));
    // The table of the machine names files without their folder.
    let ways = |name: &str| {
        let short = name.strip_prefix("machine/").unwrap_or(name).to_owned();
        [format!("`{name}`"), format!("`session/{name}`"), format!("`{short}`")]
    };
    let is_named = |name: &&str| ways(name).iter().any(|way| map.text.contains(way.as_str()));
    let missing: Vec<&str> = names.filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name {missing:?}");
}

#[test]
fn every_rule_that_code_names_has_its_text() {
    let protocol = tree::read("docs/PROTOCOL.md");
    let rules = checks::rules_of(&protocol);
    assert!(rules.len() > 15, "docs/PROTOCOL.md has only {rules:?}");
    tidy(|file| at(file, checks::unknown_rules(&file.text, &rules)));
}

#[test]
fn every_bug_has_a_test_that_plays_it_again() {
    let sources: Vec<File> = files().into_iter().filter(|file| file.kind == Kind::Rust).collect();
    let exists = |folder: &str, test: &str| {
        // In the file of the module, or in the file of its tests beside it.
        let files = [format!("{folder}.rs"), format!("{folder}_tests.rs")];
        let is_in = |path: &str| files.iter().any(|file| file == path) || path.starts_with(&format!("{folder}/"));
        // A function, or a name from which a macro makes a function for each store.
        let names = [format!("fn {test}("), format!("({test},")];
        sources.iter().any(|file| is_in(&file.path) && names.iter().any(|name| file.text.contains(name)))
    };
    let (bugs, lost) = checks::lost_tests(&tree::read("docs/TRACK_RECORD.md"), exists);
    assert!(bugs > 40, "docs/TRACK_RECORD.md has only {bugs} bugs with a test");
    assert!(lost.is_empty(), "docs/TRACK_RECORD.md: {lost:?}");
}

#[test]
fn every_dependency_has_its_reason() {
    let without = checks::without_reason(&tree::read("Cargo.toml"), &tree::read("docs/design/dependencies.md"));
    assert!(without.is_empty(), "docs/design/dependencies.md gives no reason for these: {without:?}");
}

#[test]
fn every_flaw_has_a_row_and_the_page_of_flaws_is_true() {
    let table = tree::read("scripts/mutants.txt");
    let flaws = checks::flaws(&table);
    let redis = "leasehold/src/store/redis";
    let sources = [
        "leasehold-spec/src/mutant/list.rs",
        &format!("{redis}/mutants.rs"),
        &format!("{redis}/pool/mutants.rs"),
        "leasehold/src/fence/script.rs",
    ]
    .map(|path| tree::read(&format!("crates/{path}")));
    let coded: BTreeSet<&str> = sources.iter().flat_map(|text| checks::flaws_in(text)).collect();
    let listed: BTreeSet<&str> = flaws.keys().copied().collect();
    assert!(coded.len() > 60, "only {} flaws were found", coded.len());
    assert_eq!(coded, listed, "the flaws of the code, and scripts/mutants.txt");
    let untrue = checks::untrue_rows(&tree::read("docs/MUTANTS.md"), &flaws);
    assert!(untrue.is_empty(), "docs/MUTANTS.md: {untrue:?}");
}

/// A label that nothing hits would count as missing in every campaign, or, worse, be removed from its list.
#[test]
fn every_label_of_a_path_has_its_place() {
    const MARKS: &str = "crates/leasehold-spec/src/mark/list.rs";
    let text = tree::read(MARKS);
    let listed = checks::marks_of(&text);
    assert!(listed.len() > 30, "{MARKS} lists only {listed:?}");
    let is_code = |file: &File| {
        let of_product = ["crates/leasehold-spec/src/", "crates/leasehold/src/"];
        file.kind == Kind::Rust && file.path != MARKS && of_product.iter().any(|folder| file.path.starts_with(folder))
    };
    let code: Vec<File> = files().into_iter().filter(is_code).collect();
    let hit: BTreeSet<&str> = code.iter().flat_map(|file| checks::marks_in(&file.text)).collect();
    let nowhere: Vec<_> = listed.difference(&hit).collect();
    assert!(nowhere.is_empty(), "{MARKS} lists what no code hits: {nowhere:?}");
}

/// If a file imports from a file that imports it, neither can be read, tested or moved alone.
#[test]
fn imports_run_down() {
    let files = files();
    let mut circles = Vec::new();
    for layered in LAYERED {
        let (krate, folder) = layered.split_once("src/").expect("a folder of sources");
        let sources = files.iter().filter(|file| file.kind == Kind::Rust);
        let sources =
            sources.filter_map(|file| Some((file.path.strip_prefix(krate)?.strip_prefix("src/")?, &*file.text)));
        let graph = modules::graph(sources);
        assert!(graph.keys().any(|path| path.starts_with(folder)), "{layered} is checked and does not exist");
        let circle = modules::shortest_circle(&graph, |path| path.starts_with(folder));
        circles.extend(circle.map(|lines| format!("{layered} has a circle of imports:\n{}", lines.join("\n"))));
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}
