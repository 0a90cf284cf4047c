//! The largest known tokens of names, where they are ahead of the nodes' clocks.

use std::collections::HashMap;

use leasehold_spec::{Name, Token};

/// The most names that are remembered. A name is ahead of the clock for as many microseconds as its grant has tokens, about
/// a millisecond, unless a clock is wrong.
const NAMES: usize = 4_096;

#[derive(Default)]
pub(super) struct KnownTokens(HashMap<Name, Token>);

impl KnownTokens {
    pub(super) fn of(&self, name: &Name) -> Token {
        self.0.get(name).copied().unwrap_or(Token::NONE)
    }

    /// Notes a token, unless the nodes' clocks, which show `time_us`, are ahead of it.
    pub(super) fn note(&mut self, name: &Name, token: Token, time_us: u64) {
        if token.get() < time_us {
            return;
        }
        if self.0.len() >= NAMES {
            self.0.retain(|_, known| known.get() >= time_us);
        }
        if self.0.len() >= NAMES {
            return; // The next acquire of the name takes one more round.
        }
        let known = self.0.entry(name.clone()).or_insert(token);
        *known = token.max(*known);
    }
}
