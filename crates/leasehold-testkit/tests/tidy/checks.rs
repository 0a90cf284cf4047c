//! The checks: functions of text. Each has a test in which it fails.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::Kind;

/// Lines of a source file.
pub(crate) const FILE_LINES: usize = 400;
/// Characters of a line of code: the limit of rustfmt, which ignores strings.
const CODE_WIDTH: usize = 120;
/// Characters of a comment: a sentence may end a little later than code.
const PROSE_WIDTH: usize = 124;

/// Complaints, each with its line.
type Found = Vec<(usize, String)>;

fn in_lines(text: &str, complain: impl Fn(&str) -> Option<String>) -> Found {
    let lines = text.split('\n').enumerate();
    lines.filter_map(|(at, line)| Some((at + 1, complain(line)?))).collect()
}

/// A file that is too long, or an exception that is not needed.
pub(crate) fn length(text: &str, allowed: Option<usize>) -> Option<String> {
    let lines = text.lines().count();
    match allowed {
        None if lines > FILE_LINES => Some(format!("{lines} lines are more than {FILE_LINES}: split it")),
        Some(most) if lines > most => Some(format!("{lines} lines are more than even the {most} that it may have")),
        Some(_) if lines <= FILE_LINES => Some(format!("{lines} lines are few enough: remove the exception")),
        _ => None,
    }
}

pub(crate) fn long_lines(text: &str) -> Found {
    in_lines(text, |line| {
        let is_comment = ["//", "--", "# ", "*", "/*"].iter().any(|begin| line.trim_start().starts_with(begin));
        // A row of a table cannot be broken.
        let is_row = line.trim_start().starts_with("//! |") || line.trim_start().starts_with("/// |");
        let (width, most) = (line.chars().count(), if is_comment { PROSE_WIDTH } else { CODE_WIDTH });
        (width > most && !is_row).then(|| format!("{width} characters are more than {most}"))
    })
}

pub(crate) fn trailing_blanks(text: &str) -> Found {
    in_lines(text, |line| (line.trim_end() != line).then(|| "it ends in blanks".into()))
}

pub(crate) fn tabs(text: &str) -> Found {
    in_lines(text, |line| line.contains('\t').then(|| "it has a tab".into()))
}

/// Markers of unfinished work and of debugging.
pub(crate) fn unfinished(text: &str) -> Found {
    // In pieces, because this check reads these lines as well.
    const MACROS: [&str; 3] = [concat!("todo", "!"), concat!("unimplemented", "!"), concat!("dbg", "!")];
    in_lines(text, |line| {
        let found = MACROS.iter().find(|name| {
            let mut places = line.match_indices(**name);
            places.any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        });
        found.map(|name| format!("{name} is left"))
    })
}

pub(crate) fn ignored(text: &str) -> Found {
    in_lines(text, |line| {
        let reason = line.trim_start().strip_prefix(concat!("#[", "ignore"))?;
        let has_one = reason.strip_prefix(" = \"").is_some_and(|reason| !reason.starts_with('"'));
        (!has_one).then(|| "it is ignored without a reason".into())
    })
}

/// Links of a page to files that the repository does not have.
pub(crate) fn dead_links(page: &str, text: &str, exists: impl Fn(&str) -> bool) -> Found {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut found = Found::new();
    for (at, line) in text.split('\n').enumerate() {
        for (_, behind) in line.match_indices("](").map(|(begin, _)| line.split_at(begin + 2)) {
            let target = behind.split([')', ' ', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
            for part in target.split('/') {
                match part {
                    "." | "" => {}
                    ".." => drop(parts.pop()),
                    part => parts.push(part),
                }
            }
            if !exists(&parts.join("/")) {
                found.push((at + 1, format!("a link to {target}, which does not exist")));
            }
        }
    }
    found
}

/// Names of files between backticks, in pages and comments, that do not exist.
pub(crate) fn lost_names(text: &str, kind: Kind, exists: impl Fn(&str) -> bool) -> Found {
    const ENDS: [&str; 4] = [".rs", ".lua", ".md", ".toml"];
    let mut found = Found::new();
    for (at, line) in text.split('\n').enumerate() {
        let is_prose = kind == Kind::Page || line.trim_start().starts_with("//") || line.starts_with("--");
        let quoted = line.split('`').skip(1).step_by(2).filter(|_| is_prose);
        for name in quoted {
            let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b));
            let is_file = ENDS.iter().any(|end| name.strip_suffix(end).is_some_and(|stem| !stem.is_empty()));
            if is_name && is_file && !exists(name) {
                found.push((at + 1, format!("it names {name}, which does not exist")));
            }
        }
    }
    found
}

/// The rules that a page defines: paragraphs that begin with `**P7`.
pub(crate) fn rules_of(page: &str) -> BTreeSet<u8> {
    page.lines().filter_map(|line| rules_in(line.strip_prefix("**")?).first().copied()).collect()
}

/// Rules that are named and not defined.
pub(crate) fn unknown_rules(text: &str, known: &BTreeSet<u8>) -> Found {
    in_lines(text, |line| {
        let unknown = rules_in(line).into_iter().find(|rule| !known.contains(rule))?;
        Some(format!("P{unknown} is no rule of docs/PROTOCOL.md"))
    })
}

/// The rules that a line names, as separate words. At most thirty rules are possible.
fn rules_in(line: &str) -> Vec<u8> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rules = Vec::new();
    for (at, _) in line.match_indices('P') {
        let digits: String = line[at + 1..].chars().take_while(char::is_ascii_digit).collect();
        let ends = line[at + 1 + digits.len()..].starts_with(is_word);
        if !line[..at].ends_with(is_word) && !ends {
            rules.extend(digits.parse::<u8>().ok().filter(|rule| (1..=30).contains(rule)));
        }
    }
    rules
}

/// Tests that a page lists as the reproduction of a bug, and that do not exist: cells `` `crate target module::test` ``,
/// where the target is one of `tests/`, or `lib`. Also returns the number of such cells.
pub(crate) fn lost_tests(page: &str, exists: impl Fn(&str, &str) -> bool) -> (usize, Found) {
    let mut cells = 0;
    let mut found = Found::new();
    for (at, line) in page.split('\n').enumerate().filter(|(_, line)| line.starts_with("| ")) {
        let Some(cell) = line.rsplit(" | ").next().and_then(|cell| cell.strip_suffix(" |")) else { continue };
        let words: Vec<&str> = cell.trim_matches('`').split(' ').collect();
        let [folder, target, path] = words[..] else { continue };
        cells += 1;
        let (module, test) = path.rsplit_once("::").unwrap_or(("", path));
        let place = match target {
            "lib" => format!("crates/{folder}/src/{}", module.trim_end_matches("::tests").replace("::", "/")),
            _ => format!("crates/{folder}/tests/{target}"),
        };
        if !exists(&place, test) {
            found.push((at + 1, format!("{folder} has no test {test} in {target}")));
        }
    }
    (cells, found)
}

/// The labels of paths that `marks!` lists in `mark.rs`.
pub(crate) fn marks_of(text: &str) -> BTreeSet<&str> {
    let listed = text.split_once("\nmarks! {\n").and_then(|(_, rest)| rest.split_once("\n}\n"));
    let lines = listed.map_or("", |(listed, _)| listed).lines();
    lines.filter_map(|line| line.trim().strip_suffix(',').filter(|mark| !mark.contains(' '))).collect()
}

/// The labels that code names.
pub(crate) fn marks_in(text: &str) -> BTreeSet<&str> {
    let is_end = |c: char| !c.is_alphanumeric();
    text.split("Mark::").skip(1).filter_map(|rest| rest.split(is_end).next()).collect()
}

/// Dependencies of the workspace, other than its own crates, that the table of reasons lacks.
pub(crate) fn without_reason(manifest: &str, design: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_listing = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            is_listing = line == "[workspace.dependencies]";
            names.extend(line.strip_prefix("[workspace.dependencies.").and_then(|name| name.strip_suffix(']')));
        } else if is_listing && !line.contains("path = ") {
            names.extend(line.split_once(" = ").map(|(name, _)| name));
        }
    }
    let table = design.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let reasons: BTreeSet<&str> = table.flat_map(|cell| cell.split(", ")).collect();
    names.into_iter().filter(|name| !reasons.contains(name)).map(str::to_owned).collect()
}

/// The rows of the table of flaws: each flaw, and the test that must detect it.
pub(crate) fn flaws(table: &str) -> BTreeMap<&str, String> {
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    let words = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    words.filter_map(|row| Some((*row.get(1)?, format!("{}::{}", row.get(3)?, row.get(4)?)))).collect()
}

/// The flaws in the code: variants of `Mutant`, and patches of scripts.
pub(crate) fn flaws_in(text: &str) -> BTreeSet<&str> {
    let variants = text.split_once("pub enum Mutant {").map_or("", |(_, rest)| rest.split('}').next().unwrap_or(""));
    let variants = variants.lines().filter_map(|line| line.trim().strip_suffix(',')).filter(|name| *name != "None");
    let patches = text.split('"').filter(|quoted| quoted.starts_with("lua-"));
    variants.chain(patches).collect()
}

/// Rows of a page's table whose second cell names flaws, and whose third cell differs from the tests that detect them.
pub(crate) fn untrue_rows(page: &str, flaws: &BTreeMap<&str, String>) -> Found {
    in_lines(page, |line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ").skip(1);
        let (named, listed) = (quoted(cells.next()?), quoted(cells.next()?));
        if let Some(unknown) = named.iter().find(|flaw| !flaws.contains_key(**flaw)) {
            return Some(format!("{unknown} is no row of scripts/mutants.txt"));
        }
        let tests: BTreeSet<&str> = named.iter().map(|flaw| flaws[*flaw].as_str()).collect();
        (!named.is_empty() && tests != listed).then(|| format!("{named:?} are detected by {tests:?}"))
    })
}

/// Returns the texts between backquotes.
fn quoted(cell: &str) -> BTreeSet<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flaws_and_the_tests_that_detect_them() {
        let flaws = flaws("# rule flaw …\nP1   P1X  a-crate rules one\nP2   lua-y  a-crate faults two::three\n");
        assert_eq!(flaws, [("P1X", "rules::one".into()), ("lua-y", "faults::two::three".into())].into());
        assert_eq!(flaws_in("pub enum Mutant {\n    /// No flaw.\n    None,\n    P1X,\n}\n"), ["P1X"].into());
        assert_eq!(flaws_in("(\"lua-y\", \"release\", \"a\", \"b\")"), ["lua-y"].into());
        let page = "\
| mutation | flaw | noticed by |
| both | `P1X`, `lua-y` | `faults::two::three`, `rules::one` |
| none | | later |
| gone | `P1Z` | `rules::one` |
| half | `P1X`, `lua-y` | `rules::one` |";
        assert_eq!(lines(&untrue_rows(page, &flaws)), [4, 5]);
    }

    fn lines(found: &Found) -> Vec<usize> {
        found.iter().map(|(line, _)| *line).collect()
    }

    #[test]
    fn lengths_of_files() {
        let long = "x\n".repeat(FILE_LINES + 1);
        assert!(length(&long, None).is_some());
        assert!(length(&long, Some(FILE_LINES + 1)).is_none());
        assert!(length(&long, Some(FILE_LINES)).is_some());
        let short = "x\n".repeat(FILE_LINES);
        assert!(length(&short, None).is_none());
        assert!(length(&short, Some(FILE_LINES + 1)).is_some(), "an exception that nothing needs");
    }

    #[test]
    fn lengths_of_lines() {
        let text = [120, 121].map(|width| "ä".repeat(width)).join("\n");
        assert_eq!(lines(&long_lines(&text)), [2]);
        let text = [124, 125].map(|width| format!("  // {}", "x".repeat(width - 5))).join("\n");
        assert_eq!(lines(&long_lines(&text)), [2]);
    }

    #[test]
    fn blanks_and_tabs() {
        assert_eq!(lines(&trailing_blanks("a\nb \nc\t\n\n d")), [2, 3]);
        assert_eq!(lines(&tabs("a\n\tb\n  c")), [2]);
    }

    #[test]
    fn unfinished_work() {
        let text = ["let x = ", "(", "    my_", "_of(), ", "[test]"];
        let [a, b, c, d, e] = text;
        let text = format!("{a}{}!{b}\n{c}{}!\n{}!{d}\n{e}", "todo", "todo", "dbg");
        assert_eq!(lines(&unfinished(&text)), [1, 3]);
    }

    #[test]
    fn ignored_tests_without_a_reason() {
        let word = concat!("#[", "ignore");
        let text = format!("{word}]\n    {word} = \"\"]\n{word} = \"started by others\"]\n// no attribute");
        assert_eq!(lines(&ignored(&text)), [1, 2]);
    }

    #[test]
    fn dead_links_are_found() {
        let exists = |path: &str| ["README.md", "docs/A.md"].contains(&path);
        let page = "[a](A.md) [b](../README.md#part)\n[c](B.md)\n[d](https://b.example/x) [e](#here)\n[f](../A.md)";
        assert_eq!(lines(&dead_links("docs/P.md", page, exists)), [2, 4]);
        assert_eq!(lines(&dead_links("P.md", "[a](docs/A.md) [b](./docs/B.md)", exists)), [1]);
    }

    #[test]
    fn names_of_missing_files() {
        let exists = |name: &str| name == "a.rs";
        let text = "`a.rs` and `b.rs`\n// `x.lua:3` `.lua` `*.rs`\n// see `c.lua`, `a.rs`\nlet b = `d.rs`;";
        assert_eq!(lines(&lost_names(text, Kind::Rust, exists)), [3]);
        assert_eq!(lines(&lost_names(text, Kind::Page, exists)), [1, 3, 4]);
    }

    #[test]
    fn rules_without_a_text() {
        let rules = rules_of("**P1 Settle.** As P2 says.\nP3 is mentioned.\n  **P4 is not one.**\n**P22 Fences.**");
        assert_eq!(rules, BTreeSet::from([1, 22]));
        let text = format!("P1, (P22)\nP2-P4\nP12FromReceipt MAP1 P99 P_2 P0\n// see P{}", 30);
        assert_eq!(lines(&unknown_rules(&text, &rules)), [2, 4]);
    }

    #[test]
    fn missing_tests() {
        let exists = |folder: &str, test: &str| folder == "crates/a/tests/b" && test == "c";
        let page = "| what | how | test |\n|---|---|---|\n| x | read | `a b m::c` |\n| y | sim | `a b c` |\n\
                    | z | sim | `a b d` |\n| z | sim | `a e c` |\n| z | sim | abc |\n`a b f`\n";
        let (cells, lost) = lost_tests(page, exists);
        assert_eq!((cells, lines(&lost)), (4, vec![5, 6]));
    }

    #[test]
    fn labels_of_paths() {
        let text = "macro_rules! marks {}\nmarks! {\n    /// A, with a comma,\n    Late,\n    Gone,\n}\nmod x;\n";
        assert_eq!(marks_of(text), BTreeSet::from(["Gone", "Late"]));
        assert_eq!(marks_in("hit(Mark::Late); Mark::Gone}"), BTreeSet::from(["Gone", "Late"]));
    }

    #[test]
    fn dependencies_without_a_reason() {
        let manifest = "[workspace.dependencies]\nours = { path = \"x\" }\na = \"1\"\nb = { version = \"2\" }\n\n\
                        c = \"1\"\n[workspace.lints]\nd = \"x\"\n[workspace.dependencies.e]\nversion = \"1\"\n";
        let design = "| crate | for |\n|---|---|\n| a, c | everything |\nb is mentioned, and no row of its own\n";
        assert_eq!(without_reason(manifest, design), ["b", "e"]);
    }
}
