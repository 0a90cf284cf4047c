//! Replaces the names of fields, which Lua files use, by the positions that the server gets.
//!
//! The names cost the server nothing, because it never sees them. Each form is valid Lua. The layouts are in `layout.rs`.
//!
//! | A Lua file says | The server gets | Meaning |
//! |---|---|---|
//! | `sub(text, RECORD.length)` | `85, 92` | a field: its first byte and its last byte, counted from 1 |
//! | `sub(text, RECORD.label)` | `184` | a field that reaches to the end of the text: its first byte |
//! | `sub(text, RECORD.id.session)` | `21, 52` | a field of a field |
//! | `sub(text, RECORD.token.to.id)` | `5, 84` | from a field to a later field of the same layout |
//! | `sub(text, RECORD.id.from)` | `21` | the first byte: from this field to the end of the text |
//! | `sub(text, ENTRY.before.behind)` | `131` | the first byte after a field |
//! | `'RECORD.since.offset'` | `'92'` | the number of bytes before a field, also within quotes |
//! | `#text >= QUEUE.size` | `170` | the number of bytes of a layout or a field, without a field that reaches to the end |
//! | `#text > RECORD.short` | `182` | one less than `size`: the largest size that is too short |
//! | `sub(text, LAPSE(at).time)` | `at + 32, at + 47` | a field, if its *layout* begins at this position |
//! | `sub(text, LAPSE.time(at))` | `at, at + 15` | a field, if the *field* begins at this position |
//! | `sub(text, TIME[i])` | `16 * i - 15, 16 * i` | the `i`th of a row of equal layouts, counted from 1 |
//!
//! The position in parentheses is a name, or a name and a number: `VOTE(at + 1).id`. An unknown layout or field stays as
//! it is, so that a test finds it.

use super::layout::{Field, LAYOUTS, Layout, Place};

/// Replaces the names of fields by their positions.
pub(super) fn with_positions(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let behind = if let Some((positions, behind)) = positions(rest, |_| ()) {
            code.push_str(&positions);
            behind
        } else {
            // A word, and the characters after it.
            let word = rest.find(|c| !is_word_char(c)).unwrap_or(rest.len());
            let signs = rest[word..].find(is_word_char).unwrap_or(rest.len() - word);
            code.push_str(&rest[..word + signs]);
            &rest[word + signs..]
        };
        rest = behind;
    }
    code
}

/// Returns the positions that the name at the beginning of a text stands for, and the text after the name. Passes each
/// field that is named to `named`.
pub(super) fn positions(text: &str, mut named: impl FnMut(&'static Field)) -> Option<(String, &str)> {
    let mut names = Names(text);
    let layout = names.layout()?;
    if let Some(number) = names.between('[', ']') {
        let size = layout.size();
        return Some((format!("{size} * {number} - {}, {size} * {number}", size - 1), names.0));
    }
    let mut part = Part::of(layout);
    let mut is_more = part.rebase(&mut names);
    while let Some(name) = names.field() {
        let positions = match name {
            "from" => part.position(part.place.offset),
            "behind" => part.position(part.place.offset + part.place.width),
            "offset" => part.place.offset.to_string(),
            "size" => part.place.width.to_string(),
            "short" => (part.place.width - 1).to_string(),
            "to" => {
                named(part.extend(names.field()?)?);
                continue;
            }
            name => {
                named(part.enter(name)?);
                part.rebase(&mut names);
                is_more = true;
                continue;
            }
        };
        return Some((positions, names.0));
    }
    is_more.then(|| (part.both(), names.0))
}

/// The part of a text that the names read so far stand for.
struct Part<'a> {
    /// The name of the position at which the text begins, and a number to add.
    base: Option<(&'a str, usize)>,
    place: Place,
    is_open: bool,
    /// The layout of the last field, and its position in the text.
    around: (&'static Layout, usize),
    /// The layout that the part has itself.
    inside: Option<&'static Layout>,
}

impl<'a> Part<'a> {
    fn of(layout: &'static Layout) -> Self {
        let place = Place { offset: 0, width: layout.size() };
        Self { base: None, place, is_open: layout.is_open(), around: (layout, 0), inside: Some(layout) }
    }

    /// Goes on to a field of the part.
    fn enter(&mut self, name: &str) -> Option<&'static Field> {
        let (layout, begin) = (self.inside?, self.place.offset);
        let (place, field) = layout.find(name)?;
        self.place = Place { offset: begin + place.offset, width: place.width };
        self.around = (layout, begin);
        (self.is_open, self.inside) = (field.kind.is_open(), field.kind.inside());
        Some(field)
    }

    /// Makes the part longer, up to a later field beside it.
    fn extend(&mut self, name: &str) -> Option<&'static Field> {
        let (layout, begin) = self.around;
        let (place, field) = layout.find(name)?;
        self.place.width = (begin + place.offset + place.width).checked_sub(self.place.offset)?;
        (self.is_open, self.inside) = (field.kind.is_open(), None);
        Some(field)
    }

    /// Reads the position at which the part begins, if there is one.
    fn rebase(&mut self, names: &mut Names<'a>) -> bool {
        let Some(base) = names.between('(', ')') else { return false };
        let (name, number) = base.split_once(" + ").map_or((base, Some(0)), |(name, n)| (name, n.parse().ok()));
        self.base = number.map(|number| (name, number));
        self.place.offset = 0;
        true
    }

    fn position(&self, offset: usize) -> String {
        match self.base {
            None => (offset + 1).to_string(),
            Some((name, number)) if number + offset == 0 => name.to_owned(),
            Some((name, number)) => format!("{name} + {}", number + offset),
        }
    }

    fn both(&self) -> String {
        let Place { offset, width } = self.place;
        let first = self.position(offset);
        if self.is_open { first } else { format!("{first}, {}", self.position(offset + width - 1)) }
    }
}

/// The names that are not read yet.
struct Names<'a>(&'a str);

impl<'a> Names<'a> {
    fn layout(&mut self) -> Option<&'static Layout> {
        let name = self.word();
        LAYOUTS.iter().find(|layout| layout.name == name).copied()
    }

    fn field(&mut self) -> Option<&'a str> {
        self.0 = self.0.strip_prefix('.').filter(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()))?;
        Some(self.word())
    }

    fn between(&mut self, open: char, close: char) -> Option<&'a str> {
        let (text, rest) = self.0.strip_prefix(open)?.split_once(close)?;
        self.0 = rest;
        Some(text)
    }

    fn word(&mut self) -> &'a str {
        let (word, rest) = self.0.split_at(self.0.find(|c| !is_word_char(c)).unwrap_or(self.0.len()));
        self.0 = rest;
        word
    }
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table at the head of this file.
    #[test]
    fn forms_are_replaced_as_documented() {
        let rows = include_str!("positions.rs").lines().filter_map(|line| line.strip_prefix("//! | `"));
        let mut count = 0;
        for row in rows {
            let mut quoted = row.split('`').step_by(2);
            let (says, gets) = (quoted.next().unwrap(), quoted.next().unwrap());
            let text = with_positions(says);
            assert!(text.ends_with(gets) || text.ends_with(&format!(" {gets})")), "{says} became {text}, not {gets}");
            count += 1;
        }
        assert_eq!(count, 12);
        assert_eq!(
            with_positions("sub(x, VOTE(at + 1).token, LAPSE(at).session)"),
            "sub(x, at + 65, at + 80, at, at + 31)"
        );
        assert_eq!(
            with_positions("sub(x, LAPSE(at)) sub(x, LAPSE.time(at).behind)"),
            "sub(x, at, at + 47) sub(x, at + 16)"
        );
    }

    #[test]
    fn unknown_names_stay() {
        for text in
            ["RECORD.lenght", "RECORDS.length", "RECORD", "QUEUE_MAX", "LAPSES, ID", "RECORD.token.session", "é.x"]
        {
            assert_eq!(with_positions(text), text);
        }
    }
}
