//! The scripts of a node, as they are sent.

use std::sync::OnceLock;

use crate::store::redis::handshake::Known;
use crate::store::redis::scripts::{Script, question, script};

/// What scripts share, put in as text where one says so. What has another in it comes before that.
const PARTS: [(&str, &str); 9] = [
    ("--@clock\n", include_str!("../part/clock.lua")),
    ("--@marked\n", include_str!("part/marked.lua")),
    ("--@open\n", include_str!("part/open.lua")),
    ("--@enqueue\n", include_str!("part/enqueue.lua")),
    ("--@unlink\n", include_str!("part/unlink.lua")),
    ("--@give\n", include_str!("part/give.lua")),
    ("--@settle\n", include_str!("part/settle.lua")),
    ("--@head\n", include_str!("part/head.lua")),
    ("--@save\n", include_str!("part/save.lua")),
];

/// All of them.
#[derive(Clone, Debug)]
pub struct NodeScripts {
    /// See `ask.lua`; so for the others.
    pub ask: Script,
    /// Up to 16 names at once.
    pub renew: Script,
    /// The vote, and the place in the queue.
    pub give_back: Script,
    /// Marks.
    pub revoke: Script,
    /// Looks after the queue.
    pub settle: Script,
    /// Looks, and writes nothing.
    pub inspect: Script,
    /// Greets.
    pub enter: Script,
    /// Ends a rest.
    pub begin: Script,
    /// Asks for our rights. A server that knows it knows the others: see `handshake.rs`.
    pub rights: Script,
}

impl NodeScripts {
    /// The scripts of this build: made once.
    pub fn get() -> &'static Self {
        static SCRIPTS: OnceLock<NodeScripts> = OnceLock::new();
        SCRIPTS.get_or_init(Self::make)
    }

    fn make() -> Self {
        let put = |name, own| script(name, own, &PARTS);
        let mut scripts = Self {
            ask: put("node/ask", include_str!("ask.lua")),
            renew: put("node/renew", include_str!("renew.lua")),
            give_back: put("node/give_back", include_str!("give_back.lua")),
            revoke: put("node/revoke", include_str!("revoke.lua")),
            settle: put("node/settle", include_str!("settle.lua")),
            inspect: put("node/inspect", include_str!("inspect.lua")),
            enter: put("node/enter", include_str!("enter.lua")),
            begin: put("node/begin", include_str!("begin.lua")),
            rights: question(&[]),
        };
        scripts.rights = question(&scripts.each());
        scripts
    }

    /// Each of them, but the question.
    pub fn each(&self) -> [&Script; 8] {
        let Self { ask, renew, give_back, revoke, settle, inspect, enter, begin, .. } = self;
        [ask, renew, give_back, revoke, settle, inspect, enter, begin]
    }

    pub(super) fn known<'a>(&'a self, each: &'a [&'a Script]) -> Known<'a> {
        Known { each, rights: &self.rights }
    }
}
