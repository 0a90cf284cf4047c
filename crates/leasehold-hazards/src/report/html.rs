//! Elements of a page. Each text and each attribute is escaped when the page is written, and at no other place.

use std::fmt::{self, Write as _};

/// Elements of HTML that have no end tag. All others have one, so that the page is well-formed XML as well.
const VOID: &[&str] = &["meta"];

/// An element.
pub(super) struct Element {
    tag: &'static str,
    attributes: Vec<(&'static str, String)>,
    children: Vec<Child>,
}

enum Child {
    Element(Element),
    Text(String),
}

/// Makes an element.
pub(super) fn el(tag: &'static str) -> Element {
    Element { tag, attributes: vec![], children: vec![] }
}

impl Element {
    /// Adds an attribute.
    pub(super) fn attr(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// Adds an attribute that is a number.
    pub(super) fn number(self, name: &'static str, value: i32) -> Self {
        self.attr(name, value.to_string())
    }

    /// Sets the classes.
    pub(super) fn class(self, classes: impl Into<String>) -> Self {
        self.attr("class", classes)
    }

    /// Adds text.
    pub(super) fn text(mut self, text: impl Into<String>) -> Self {
        self.children.push(Child::Text(text.into()));
        self
    }

    /// Adds an element.
    pub(super) fn child(mut self, child: Element) -> Self {
        self.children.push(Child::Element(child));
        self
    }

    /// Adds elements.
    pub(super) fn children(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children.into_iter().map(Child::Element));
        self
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.tag)?;
        for (name, value) in &self.attributes {
            write!(f, " {name}=\"")?;
            escape(f, value)?;
            f.write_char('"')?;
        }
        if VOID.contains(&self.tag) {
            return f.write_str("/>");
        }
        f.write_char('>')?;
        for child in &self.children {
            match child {
                Child::Element(element) => element.fmt(f)?,
                Child::Text(text) => escape(f, text)?,
            }
        }
        write!(f, "</{}>", self.tag)?;
        // A line break after a block keeps the page readable and does not change what it shows.
        if matches!(self.tag, "p" | "li" | "tr" | "svg" | "section" | "g") { f.write_char('\n') } else { Ok(()) }
    }
}

fn escape(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    for letter in text.chars() {
        match letter {
            '&' => f.write_str("&amp;")?,
            '<' => f.write_str("&lt;")?,
            '>' => f.write_str("&gt;")?,
            '"' => f.write_str("&quot;")?,
            _ => f.write_char(letter)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::el;

    #[test]
    fn texts_and_attributes_are_escaped() {
        let element = el("a").attr("title", "\"<&").text("1 < 2 & 3 > 2").child(el("meta"));
        assert_eq!(element.to_string(), "<a title=\"&quot;&lt;&amp;\">1 &lt; 2 &amp; 3 &gt; 2<meta/></a>");
    }
}
