//! The parts of a layout: fields, their widths, and the places that follow from them. The layouts are in `layout.rs`.

use std::ops::Range;

use Kind::{Bytes, Inline, Many, Nested, Rest};

/// A text of fields of fixed width. Only the last field may reach to the end of the text.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The name in Lua.
    pub(super) name: &'static str,
    pub(super) fields: &'static [Field],
}

#[derive(Debug)]
pub(super) struct Field {
    /// The name of its layout.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test checks that every field is used"))]
    pub(super) of: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The content, for docs/PROTOCOL.md.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it with the page"))]
    pub(super) about: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// This number of bytes.
    Bytes(usize),
    /// A field that has fields of its own.
    Nested(&'static Layout),
    /// The fields of that layout are fields of this one. The name stands for all of them.
    Inline(&'static Layout),
    /// All bytes to the end of the text.
    Rest,
    /// Any number of that layout, to the end of the text. Its fields are those of the first one.
    Many(&'static Layout),
}

/// The place of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of bytes before it.
    pub(crate) offset: usize,
    /// Its number of bytes, without a last field that reaches to the end of the text.
    pub(crate) width: usize,
}

impl Layout {
    /// Returns the place of a field, or of a field of a field. For constants only: see [`field!`].
    pub(crate) const fn place(&'static self, path: &[&str]) -> Place {
        let (mut place, mut inside, mut at) = (Place { offset: 0, width: self.size() }, Some(self), 0);
        while at < path.len() {
            let Some(layout) = inside else { panic!("this field has no fields") };
            let Some((found, field)) = layout.find(path[at]) else { panic!("the layout has no such field") };
            place = Place { offset: place.offset + found.offset, width: found.width };
            inside = field.kind.inside();
            at += 1;
        }
        place
    }

    /// Returns the number of bytes of all fields of fixed width.
    pub(super) const fn size(&self) -> usize {
        let (mut size, mut at) = (0, 0);
        while at < self.fields.len() {
            size += self.fields[at].kind.size();
            at += 1;
        }
        size
    }

    /// Whether the last field reaches to the end of the text.
    pub(super) fn is_open(&self) -> bool {
        self.fields.last().is_some_and(|field| field.kind.is_open())
    }

    /// Finds a field by its name, also in the layouts whose fields are fields of this one.
    pub(super) const fn find(&self, name: &str) -> Option<(Place, &'static Field)> {
        let (mut offset, mut at) = (0, 0);
        while at < self.fields.len() {
            let field: &'static Field = &self.fields[at];
            if is_same(field.name, name) {
                return Some((Place { offset, width: field.kind.size() }, field));
            }
            if let Inline(layout) = field.kind
                && let Some((place, field)) = layout.find(name)
            {
                return Some((Place { offset: offset + place.offset, width: place.width }, field));
            }
            offset += field.kind.size();
            at += 1;
        }
        None
    }
}

impl Kind {
    pub(super) const fn size(self) -> usize {
        match self {
            Bytes(size) => size,
            Nested(layout) | Inline(layout) => layout.size(),
            Rest | Many(_) => 0,
        }
    }

    pub(super) fn is_open(self) -> bool {
        match self {
            Bytes(_) => false,
            Nested(layout) | Inline(layout) => layout.is_open(),
            Rest | Many(_) => true,
        }
    }

    /// Returns the layout of the field, if it has one.
    pub(super) const fn inside(self) -> Option<&'static Layout> {
        match self {
            Nested(layout) | Inline(layout) | Many(layout) => Some(layout),
            Bytes(_) | Rest => None,
        }
    }
}

impl Place {
    /// Returns the smallest number that has too many digits for the field.
    pub(crate) const fn end(self) -> u64 {
        10_u64.pow(self.width as u32)
    }

    /// Returns the bytes of the field in a text that begins with its layout.
    pub(crate) const fn range(self) -> Range<usize> {
        self.offset..self.offset + self.width
    }
}

/// Compares two strings. The operator `==` does not work in constants.
const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}
