//! Rules for the table of layouts, for the Lua files that use it, and for the page that shows it.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::store::redis::positions::positions;
use crate::store::redis::source::{lua_files, without_comments};

/// The words that `positions.rs` reads behind a field.
const FORMS: [&str; 6] = ["from", "behind", "offset", "size", "short", "to"];

/// Fields that neither a script nor Rust names: their layout, and why.
const UNNAMED: [(&str, &str, &str); 12] = [
    ("ASKED", "counter", "joined behind the session, as one text"),
    ("ASKED", "nonce", "as above"),
    ("COUNTS", "entries", "scripts count both kinds of entries as one number"),
    ("MARKER", "version", "compared as text, as far as its letter"),
    ("BRIEF", "word", "compared as text"),
    ("MARKS", "version", "the fence reads its marks by a pattern, and checks only their size"),
    ("MARKS", "writers", "as above"),
    ("MARKS", "blank", "as above"),
    ("MARKS", "all", "as above"),
    ("MARKS", "blank2", "as above"),
    ("MARKS", "client", "as above"),
    ("MARKS", "blank3", "as above"),
];

/// Calls that cut at a number, and what they cut.
const CUTS: [(&str, &str); 12] = [
    ("sub(pool.told[at], ' D ', ' M ', 1)", "replaces the first word of its kind"),
    ("string.sub('00000' .. now, -6)", "the µs of TIME: six digits"),
    ("sub(got.err, 1, 9)", "the first word of an error of the server"),
    ("sub(text.err, 1, 9)", "the same"),
    ("sub(found.err, 1, 9)", "the same"),
    ("sub(lapses, 1, at - 1)", "all before a position"),
    ("sub(others, 1, 5)", "a part of a reply, without the claim"),
    ("string.sub(word, 5)", "the word behind LOST"),
    ("sub(word, 1, 4)", "the word LOST"),
    ("sub(word, 5)", "the word behind LOST"),
    ("sub(front, 1, -2)", "a prefix of keys, without its colon"),
    ("sub(name, #front + 1)", "a key, without its prefix"),
];

/// Lengths that are compared with a number, and what they are.
const LENGTHS: [(&str, &str); 2] = [("#now < 6", "the µs of TIME: six digits"), ("#sets > 4", "a list, and no text")];

/// The layouts of stored data, which docs/PROTOCOL.md shows.
const STORED: [&Layout; 16] = [
    &RECORD, &QUEUE, &LAPSE, &ENTRY, &ID, &POOL, &WAITERS, &GRANT, &WAITER, &UPGRADE, &LATCH, &NODE, &CALL, &VOTE,
    &MEMBER, &MARKER,
];

/// Returns the fields of a layout with their places, also those of the layouts within.
fn flat(layout: &'static Layout) -> Vec<(Place, &'static Field)> {
    let names = layout.fields.iter().flat_map(|field| match field.kind {
        Inline(inner) => flat(inner).into_iter().map(|(_, field)| field.name).collect(),
        _ => vec![field.name],
    });
    names.map(|name| layout.find(name).unwrap()).collect()
}

/// Returns the code of each Lua file: without comments, but with the names of fields.
fn lua_code() -> Vec<(String, String)> {
    lua_files().into_iter().map(|(path, text)| (path, without_comments(&text))).collect()
}

#[test]
fn layouts_can_be_read_by_their_names() {
    let names: BTreeSet<&str> = LAYOUTS.iter().map(|layout| layout.name).collect();
    assert_eq!(names.len(), LAYOUTS.len(), "two layouts have one name");
    for layout in LAYOUTS {
        let fields = flat(layout);
        let names: BTreeSet<&str> = fields.iter().map(|(_, field)| field.name).collect();
        assert_eq!(names.len(), fields.len(), "two fields of {} have one name", layout.name);
        assert!(names.iter().all(|name| !FORMS.contains(name)), "a field of {} has the name of a form", layout.name);
        let mut end = 0;
        for (at, (place, field)) in fields.iter().enumerate() {
            assert_eq!(place.offset, end, "{}.{} does not follow", layout.name, field.name);
            assert!(!field.kind.is_open() || at + 1 == fields.len(), "{}.{} is not last", layout.name, field.name);
            end += place.width;
        }
        assert_eq!(end, layout.size());
    }
}

#[test]
fn every_field_is_used() {
    let mut used = BTreeSet::new();
    let mut read = |text: &str| positions(text, |field| used.extend([(field.of, field.name)])).is_some();
    for (_, code) in lua_code() {
        // A name begins behind a sign that is no letter.
        for (begin, _) in code.char_indices().filter(|(_, c)| c.is_ascii_uppercase()) {
            if !code[..begin].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                read(&code[begin..]);
            }
        }
    }
    let rust = [
        include_str!("call.rs"),
        include_str!("reply.rs"),
        include_str!("words.rs"),
        include_str!("node/call.rs"),
        include_str!("node/reply.rs"),
        include_str!("../../fence/script.rs"),
    ];
    for text in rust {
        for (at, begin) in text.match_indices("field!(") {
            assert!(read(&text[at + begin.len()..]));
        }
    }
    for field in LAYOUTS.iter().flat_map(|layout| layout.fields) {
        let is_listed = UNNAMED.iter().any(|(of, name, _)| (*of, *name) == (field.of, field.name));
        let is_used = used.contains(&(field.of, field.name)) || matches!(field.kind, Inline(_));
        assert!(is_used != is_listed, "{}.{}: used {is_used}, an exception {is_listed}", field.of, field.name);
    }
}

#[test]
fn no_lua_file_has_a_position_of_its_own() {
    let mut excepted = BTreeSet::new();
    for (path, code) in lua_code() {
        for line in code.lines() {
            for call in calls(line) {
                let is_number = |argument: &&str| {
                    let argument = argument.trim();
                    let is_name = positions(argument, |_| ()).is_some_and(|(_, behind)| behind.is_empty());
                    !is_name && argument.contains(|c: char| c.is_ascii_digit())
                };
                if let Some(number) = arguments(call).into_iter().skip(1).find(is_number) {
                    let is_listed = CUTS.iter().any(|(cut, _)| *cut == call) && excepted.insert(call.to_owned());
                    let is_known = is_listed || excepted.contains(call);
                    assert!(is_known, "{path} cuts at {number}, which no layout has: {call}");
                }
            }
            for (at, _) in line.match_indices('#') {
                let name =
                    line[at + 1..].find(|c: char| !c.is_ascii_alphanumeric()).map_or("", |end| &line[at..=at + end]);
                let behind = line[at + name.len()..].trim_start_matches([' ', '<', '>', '=', '~', ',']);
                let number = &behind[..behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len())];
                let text = &line[at..line.len() - behind.len() + number.len()];
                let is_small = matches!(number, "" | "0") || text.ends_with(", 1") || text.ends_with(", 2");
                let is_listed = LENGTHS.iter().any(|(length, _)| *length == text);
                assert!(is_small || is_listed, "{path} has a length of its own: {text} in {line}");
                if is_listed {
                    excepted.insert(text.to_owned());
                }
            }
            if let Some((_, behind)) = line.split_once("'SETRANGE', ") {
                let offset = behind.split(", ").nth(1).unwrap().trim_matches('\'');
                assert!(positions(offset, |_| ()).is_some(), "{path} writes at {offset}, which no layout has");
            }
        }
    }
    assert_eq!(excepted.len(), CUTS.len() + LENGTHS.len(), "an exception is not needed: only {excepted:?} are");
}

/// Returns each call that cuts a text, from its name to its closing parenthesis.
fn calls(line: &str) -> impl Iterator<Item = &str> {
    ["sub(", "string.byte("].into_iter().flat_map(move |name| line.match_indices(name)).map(|(at, _)| {
        let begin = if line[..at].ends_with("string.") { at - "string.".len() } else { at };
        let mut depth = 0;
        let end = line[at..].find(|c| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            c == ')' && depth == 0
        });
        &line[begin..=at + end.unwrap()]
    })
}

/// Returns the arguments of a call.
fn arguments(call: &str) -> Vec<&str> {
    let inner = &call[call.find('(').unwrap() + 1..call.len() - 1];
    let mut depth = 0;
    let split = |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    inner.split(split).collect()
}

#[test]
fn no_part_does_more_than_one_job() {
    for (path, text) in lua_files() {
        let most = if path.contains("/part/") { 60 } else { 80 };
        assert!(text.lines().count() <= most, "{path} has more than {most} lines: make parts of it");
    }
}

/// If this fails, it prints the table as it should be.
#[test]
fn the_page_shows_the_layouts_of_stored_data() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/PROTOCOL.md");
    let page = std::fs::read_to_string(page).unwrap();
    for layout in STORED {
        let mut table = format!("| bytes of {} | field | content |\n|---|---|---|\n", layout.name);
        for (Place { offset, width }, field) in flat(layout) {
            let bytes = match width {
                _ if field.kind.is_open() => format!("{}-", offset + 1),
                1 => format!("{}", offset + 1),
                _ => format!("{}-{}", offset + 1, offset + width),
            };
            table += &format!("| {bytes} | `{}` | {} |\n", field.name, field.about);
        }
        assert!(page.contains(&table), "docs/PROTOCOL.md does not have:\n\n{table}");
    }
}
