//! The labels of a figure: short words for commands, holdings and tokens.

use std::collections::BTreeSet;

use crate::redis::{Holding, Value};
use crate::scene::Timeline;
use crate::text::list;
use crate::world::Action;

/// The tokens of a timeline. A fence only compares tokens, so a figure numbers them by their size.
pub(super) struct Tokens(Vec<u64>);

impl Tokens {
    pub(super) fn of(timeline: &Timeline) -> Self {
        let mut tokens = BTreeSet::new();
        for row in &timeline.rows {
            tokens.extend(row.inside.iter().chain(&row.late).filter_map(|holder| holder.token));
            if let Action::Enters(token) | Action::Write { token, .. } = row.action {
                tokens.extend(token);
            }
            tokens.extend(row.servers.iter().flat_map(|server| &server.holds).filter_map(|holding| match holding {
                Holding::Grant { token, .. } | Holding::Vote { token, .. } => Some(*token),
                _ => None,
            }));
        }
        Self(tokens.into_iter().collect())
    }

    /// Returns the name of a token.
    pub(super) fn name(&self, token: u64) -> String {
        let place = self.0.partition_point(|other| *other < token);
        format!("token {}", place + 1)
    }

    /// Explains the names of all tokens.
    pub(super) fn legend(&self) -> Option<String> {
        let names: Vec<_> =
            self.0.iter().enumerate().map(|(place, token)| format!("{} is {token}", place + 1)).collect();
        (!names.is_empty()).then(|| format!("Tokens are numbered by their size: {}.", list(&names)))
    }
}

/// Returns what a server holds, from the longest label to the shortest one.
pub(super) fn holding(holding: &Holding, tokens: &Tokens) -> Vec<String> {
    match holding {
        Holding::Key { name, value, left_ms } => {
            let value = short_value(value);
            let end = if left_ms.is_some() { "" } else { ", for ever" };
            vec![format!("{name} = {value}{end}"), format!("{name} = {value}"), value]
        }
        Holding::Grant { label, token, waiting: 0, .. } => {
            vec![format!("{label} holds, {}", tokens.name(*token)), label.clone()]
        }
        Holding::Grant { label, token, waiting, .. } => {
            let token = tokens.name(*token);
            vec![
                format!("{label} holds, {token}; {waiting} in the queue"),
                format!("{label} holds, {token}"),
                label.clone(),
            ]
        }
        Holding::Vote { label, token, .. } => {
            vec![format!("vote for {label}, {}", tokens.name(*token)), format!("vote for {label}"), label.clone()]
        }
        Holding::Quarantine => vec!["quarantine: no vote".into(), "no vote".into()],
    }
}

/// Returns a value without the zeros that make random owners as long as on a real server.
fn short_value(value: &Value) -> String {
    let short = |text: &str| text.strip_prefix("000000").unwrap_or(text).to_owned();
    let field = |(owner, count): (&String, &i64)| match count {
        1 => short(owner),
        _ => format!("{} × {count}", short(owner)),
    };
    match value {
        Value::Text(text) => short(text),
        Value::Hash(fields) => fields.iter().map(field).collect::<Vec<_>>().join(", "),
    }
}

/// Returns a reply without such zeros, and in one short word.
pub(super) fn reply(reply: &str) -> String {
    match reply {
        "given back" => "OK".into(),
        _ => reply.strip_prefix("000000").unwrap_or(reply).to_owned(),
    }
}

/// Estimates the width of a text in the sans serif fonts of common systems, in pixels at 12 pixels.
pub(super) fn width(text: &str) -> i32 {
    let letter = |letter: char| match letter {
        'i' | 'l' | 'j' | 't' | 'f' | '.' | ',' | ':' | ';' | '\'' | ' ' | '|' | '(' | ')' => 40,
        'm' | 'w' | 'M' | 'W' => 105,
        'A'..='Z' | '0'..='9' | '=' => 78,
        _ => 68,
    };
    (text.chars().map(letter).sum::<i32>() + 9) / 10
}

/// Estimates the width of a bold text.
pub(super) fn bold_width(text: &str) -> i32 {
    width(text) * 118 / 100
}
