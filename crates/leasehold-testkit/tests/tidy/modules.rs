//! The graph of imports between the source files of a crate, and its circles.
//!
//! Imports must run down: a file never imports from a file that imports it, directly or in a circle. A file imports
//! another file if its code, tests excluded, has a path to the module of that file: in a `use`, or in an expression or
//! a type. An item that a `mod.rs` re-exports with `pub use` belongs to the `mod.rs`. So a file of a folder must import
//! an item of a sibling by the path of the sibling. If it imports the item from the `mod.rs`, that is a circle: the
//! `mod.rs` imports the sibling, and perhaps the file itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One import: the file that is imported, and the line and the path by which it is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Import {
    to: String,
    line: usize,
    path: String,
}

/// The imports of each file.
pub(crate) type Graph = BTreeMap<String, Vec<Import>>;

/// Returns the graph of a crate. The files are its sources, with their paths from `src/` on.
pub(crate) fn graph<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Graph {
    let files: BTreeMap<&str, &str> = files.into_iter().collect();
    let modules: BTreeMap<Vec<String>, &str> = files.keys().map(|path| (module_of(path), *path)).collect();
    let parsed: BTreeMap<&str, Parsed> = files.iter().map(|(path, text)| (*path, Parsed::of(text))).collect();
    let mut tests: Vec<Vec<String>> = Vec::new();
    for (path, file) in &parsed {
        tests.extend(file.test_modules.iter().map(|name| [module_of(path), vec![name.clone()]].concat()));
    }
    let is_test = |path: &str| {
        path.ends_with("_tests.rs") || tests.iter().any(|test| module_of(path).starts_with(test.as_slice()))
    };
    let mut graph = Graph::new();
    for (from, file) in parsed.iter().filter(|(path, _)| !is_test(path)) {
        let imports = graph.entry((*from).to_owned()).or_default();
        for (line, inner, path) in &file.paths {
            let Some(target) = absolute(&module_of(from), inner, path) else { continue };
            let to = (0..=target.len()).rev().find_map(|length| modules.get(&target[..length]));
            if let Some(to) = to.filter(|to| *to != from && !is_test(to)) {
                imports.push(Import { to: (*to).to_owned(), line: *line, path: path.join("::") });
            }
        }
    }
    graph
}

/// Returns the shortest circle among the files that `is_checked` names, one line for each of its imports.
pub(crate) fn shortest_circle(graph: &Graph, is_checked: impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let starts = graph.keys().filter(|path| is_checked(path));
    starts.filter_map(|start| circle_of(graph, start, &is_checked)).min_by_key(Vec::len)
}

/// Returns the shortest circle that begins and ends with this file.
fn circle_of(graph: &Graph, start: &str, is_checked: &impl Fn(&str) -> bool) -> Option<Vec<String>> {
    let mut found: BTreeMap<&str, (&str, &Import)> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(from) = queue.pop_front() {
        for import in graph.get(from).into_iter().flatten().filter(|import| is_checked(&import.to)) {
            if !found.contains_key(import.to.as_str()) {
                found.insert(&import.to, (from, import));
                queue.push_back(&import.to);
            }
        }
    }
    let mut lines = Vec::new();
    let mut at = start;
    while lines.is_empty() || at != start {
        let (from, Import { to, line, path }) = found.get(at)?;
        lines.push(format!("{from}:{line} imports {to} ({path})"));
        at = from;
    }
    lines.reverse();
    Some(lines)
}

/// Returns the path of the module of a file. The file `b` in the folder `a`, and the `mod.rs` in the folder `a/b`, have
/// the path `a::b`.
fn module_of(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut names: Vec<String> = path.split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|name| name == "mod") || ["lib", "main"].contains(&path) {
        names.pop();
    }
    names
}

/// Returns the path from the root of the crate on. `inner` are the modules in the file around the path.
fn absolute(file: &[String], inner: &[String], path: &[String]) -> Option<Vec<String>> {
    let mut base = [file, inner].concat();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        _ => {}
    }
    while rest.first().is_some_and(|name| name == "super") {
        base.pop()?;
        rest = &rest[1..];
    }
    base.extend(rest.iter().cloned());
    Some(base)
}

/// The parts of a source file that matter here.
#[derive(Default)]
struct Parsed {
    /// The names of modules that exist only in tests.
    test_modules: BTreeSet<String>,
    /// Each path into the crate, with its line and the inline modules around it.
    paths: Vec<(usize, Vec<String>, Vec<String>)>,
}

impl Parsed {
    fn of(text: &str) -> Self {
        let tokens = tokens(text);
        let word = |at: usize| tokens.get(at).map_or("", |(_, token)| token.as_str());
        let mut parsed = Self::default();
        let children = (0..tokens.len()).filter(|at| word(*at) == "mod" && word(at + 2) == ";");
        let children: BTreeSet<&str> = children.map(|at| word(at + 1)).collect();
        // The inline modules around the token, and the depth of braces at which each ends.
        let (mut inner, mut depth): (Vec<(String, usize)>, usize) = (Vec::new(), 0);
        let mut at = 0;
        while at < tokens.len() {
            let is_path =
                ["crate", "self", "super"].contains(&word(at)) || inner.is_empty() && children.contains(word(at));
            let is_inside = at > 0 && word(at - 1) == "::";
            // The visibility `pub(in super::super)` imports nothing.
            let is_visibility = at > 1 && word(at - 1) == "in" && word(at - 2) == "(";
            match word(at) {
                "#" if word(at + 1) == "[" => {
                    let end = end_of_group(&tokens, at + 1);
                    let names: Vec<&str> = (at..end).map(word).collect();
                    let is_test = names.contains(&"cfg") && names.contains(&"test") && !names.contains(&"not");
                    at = end;
                    if is_test {
                        while word(at) == "#" {
                            at = end_of_group(&tokens, at + 1);
                        }
                        let end = end_of_item(&tokens, at);
                        let module = (at..end).find(|at| word(*at) == "mod").map(|at| word(at + 1).to_owned());
                        parsed.test_modules.extend(module);
                        at = end;
                    }
                    continue;
                }
                "mod" if word(at + 2) == "{" => {
                    inner.push((word(at + 1).to_owned(), depth));
                    depth += 1;
                    at += 3;
                    continue;
                }
                // Not the `use<'a>` of a type.
                "use" if word(at + 1) != "<" => {
                    let around: Vec<String> = inner.iter().map(|(name, _)| name.clone()).collect();
                    let mut paths = Vec::new();
                    at = use_tree(&tokens, at + 1, &[], &mut paths);
                    let is_own = |name: &str| ["crate", "self", "super"].contains(&name) || children.contains(name);
                    let own = paths.into_iter().filter(|(_, path)| path.first().is_some_and(|first| is_own(first)));
                    parsed.paths.extend(own.map(|(line, path)| (line, around.clone(), path)));
                    continue;
                }
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    inner.pop_if(|(_, end)| *end == depth);
                }
                _ if is_path && word(at + 1) == "::" && !is_inside && !is_visibility => {
                    let (line, mut path) = (tokens[at].0, vec![word(at).to_owned()]);
                    while word(at + 1) == "::" && is_name(word(at + 2)) {
                        path.push(word(at + 2).to_owned());
                        at += 2;
                    }
                    let around = inner.iter().map(|(name, _)| name.clone()).collect();
                    parsed.paths.push((line, around, path));
                }
                _ => {}
            }
            at += 1;
        }
        parsed
    }
}

/// Adds all paths of a `use` that begins at this token, and returns the token behind it.
fn use_tree(
    tokens: &[(usize, String)],
    mut at: usize,
    before: &[String],
    paths: &mut Vec<(usize, Vec<String>)>,
) -> usize {
    let mut path = before.to_vec();
    let line = tokens.get(at).map_or(0, |(line, _)| *line);
    while let Some((_, token)) = tokens.get(at) {
        match token.as_str() {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|(_, token)| token != "}" && token != ";") {
                    at = use_tree(tokens, at, &path, paths);
                    at += usize::from(tokens.get(at).is_some_and(|(_, token)| token == ","));
                }
                return at + 1;
            }
            "," | "}" | ";" => break,
            // The name behind `as` is no part of the path.
            "as" => at += 1,
            "self" if !path.is_empty() => {}
            name if is_name(name) => path.push(name.to_owned()),
            _ => {}
        }
        at += 1;
    }
    paths.push((line, path));
    at
}

/// Returns the token behind the group that begins at this one.
fn end_of_group(tokens: &[(usize, String)], from: usize) -> usize {
    let mut depth = 0_usize;
    for (at, (_, token)) in tokens.iter().enumerate().skip(from) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Returns the token behind the item, the field or the statement that begins at this one.
fn end_of_item(tokens: &[(usize, String)], from: usize) -> usize {
    let word = |at: usize| tokens.get(at).map_or("", |(_, token)| token.as_str());
    let is_limited = word(from) == "pub" && word(from + 1) == "(";
    let begin = if is_limited { end_of_group(tokens, from + 1) } else { from + usize::from(word(from) == "pub") };
    let is_use = word(begin) == "use";
    let mut at = from;
    while let Some((_, token)) = tokens.get(at) {
        match token.as_str() {
            ";" | "," => return at + 1,
            "}" => return at,
            "{" if !is_use => return end_of_group(tokens, at),
            "{" | "(" | "[" => at = end_of_group(tokens, at),
            _ => at += 1,
        }
    }
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Returns the tokens of Rust code with their lines, without comments, texts and numbers.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = text.chars().collect();
    let is = |at: usize, begin: &str| begin.chars().enumerate().all(|(nth, c)| chars.get(at + nth) == Some(&c));
    let find = |from: usize, end: &str| (from..chars.len()).find(|at| is(*at, end)).unwrap_or(chars.len());
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let begin = at;
        match chars[at] {
            '/' if is(at, "//") => at = find(at, "\n"),
            '/' if is(at, "/*") => at = find(at, "*/") + 2,
            '"' => at = end_of_text(&chars, at),
            // A character, or a lifetime.
            '\'' if is(at, "'\\") => at = find(at + 3, "'") + 1,
            '\'' if chars.get(at + 2) == Some(&'\'') => at += 3,
            'r' | 'b' if raw_text(&chars, at).is_some() => {
                let (quote, hashes) = raw_text(&chars, at).unwrap_or_default();
                at = find(quote + 1, &format!("\"{}", "#".repeat(hashes))) + 1 + hashes;
            }
            c if c.is_alphanumeric() || c == '_' => {
                while chars.get(at).is_some_and(|c| c.is_alphanumeric() || *c == '_') {
                    at += 1;
                }
                tokens.push((line, chars[begin..at].iter().collect()));
            }
            ':' if is(at, "::") => {
                at += 2;
                tokens.push((line, "::".into()));
            }
            c => {
                at += 1;
                if !c.is_whitespace() {
                    tokens.push((line, c.into()));
                }
            }
        }
        line += chars[begin..at.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    tokens
}

/// Returns the place behind the text that begins at this quotation mark.
fn end_of_text(chars: &[char], quote: usize) -> usize {
    let mut at = quote + 1;
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Returns the place of the quotation mark and the number of `#`, if a raw text begins here.
fn raw_text(chars: &[char], at: usize) -> Option<(usize, usize)> {
    let is_in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let begin = at + usize::from(chars[at] == 'b');
    let hashes = chars.get(begin + 1..)?.iter().take_while(|c| **c == '#').count();
    let quote = begin + 1 + hashes;
    (!is_in_word && chars.get(begin) == Some(&'r') && chars.get(quote) == Some(&'"')).then_some((quote, hashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let graph = graph(files.iter().copied());
        let lines = graph.iter().flat_map(|(from, imports)| imports.iter().map(move |to| format!("{from} {}", to.to)));
        lines.collect()
    }

    fn circle(files: &[(&str, &str)]) -> Option<Vec<String>> {
        shortest_circle(&graph(files.iter().copied()), |_| true)
    }

    #[test]
    fn a_path_leads_to_the_file_of_the_longest_module() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\npub use a::{A, c::{self, C as D}};\nfn f() { b::g() }"),
            ("a/mod.rs", "mod c;\npub struct A;"),
            ("a/c.rs", "use super::super::b::{B};\nuse crate::b::x::Y;\nuse std::b;\npub struct C(crate::b::Z);"),
            ("b.rs", "use crate::T;\nmod inner { use super::Z; }\npub(in super::a) struct W;"),
        ];
        let found = imports(&files);
        let expected = ["a/c.rs b.rs", "a/c.rs b.rs", "a/c.rs b.rs", "b.rs lib.rs", "lib.rs a/mod.rs", "lib.rs a/c.rs"];
        assert_eq!(found[..6], expected);
        assert_eq!(found[6..], ["lib.rs a/c.rs", "lib.rs b.rs"]);
    }

    #[test]
    fn comments_texts_and_tests_import_nothing() {
        let text = "// use crate::a::A;
/* crate::a */ const T: &str = \"crate::a::A \\\" }\"; const R: &str = r#\"crate::a \" \"#;
#[cfg(test)]
use crate::a::{A, B};
#[cfg(all(test, x))]
#[path = \"x\"]
mod tests { use crate::a::A; }
#[cfg(test)]
mod more;
fn f<'a>(c: char) -> bool { c == '{' || c == '\\'' }
";
        let uses = "use crate::a::A;";
        let files = [("lib.rs", text), ("a.rs", ""), ("more.rs", uses), ("b_tests.rs", uses)];
        assert_eq!(imports(&files), [""; 0]);
        assert_eq!(imports(&[("lib.rs", "#[cfg(not(test))]\nuse crate::a::A;"), ("a.rs", "")]), ["lib.rs a.rs"]);
    }

    #[test]
    fn the_shortest_circle_is_found() {
        let long = [("a.rs", "use crate::b::B;"), ("b.rs", "\nuse crate::c::C;"), ("c.rs", "use crate::a::A;")];
        let expected = [
            "a.rs:1 imports b.rs (crate::b::B)",
            "b.rs:2 imports c.rs (crate::c::C)",
            "c.rs:1 imports a.rs (crate::a::A)",
        ];
        assert_eq!(circle(&long).unwrap(), expected);
        let both = [&long[..], &[("d.rs", "use crate::e::E;"), ("e.rs", "use super::d::D;")]].concat();
        assert_eq!(circle(&both).unwrap().len(), 2);
        assert_eq!(circle(&long[..2]), None);
        let graph = graph(both);
        assert_eq!(shortest_circle(&graph, |path| path < "d").unwrap().len(), 3);
        assert_eq!(shortest_circle(&graph, |path| path < "c"), None, "a circle that leaves the checked files");
    }

    #[test]
    fn an_item_that_a_root_re_exports_is_imported_from_the_root() {
        let root = ("a/mod.rs", "mod b;\nmod c;\npub use b::B;\nuse c::C;");
        let upward = ("a/c.rs", "use super::B;");
        let circle_upward = circle(&[root, upward, ("a/b.rs", "")]).unwrap();
        assert_eq!(circle_upward, ["a/c.rs:1 imports a/mod.rs (super::B)", "a/mod.rs:4 imports a/c.rs (c::C)"]);
        assert_eq!(circle(&[root, ("a/c.rs", "use super::b::B;"), ("a/b.rs", "")]), None);
    }
}
