//! The Lua scripts of the tutorials, each with a model of what it does.
//!
//! The model of a script is written in the same order as its text, so that the two can be read side by side. A test runs
//! both on the same random commands.

use super::keys::Keys;
use super::value::{Message, Reply};

/// A script of a tutorial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Script {
    /// Deletes the key if it has this value.
    CompareAndDelete,
    /// Takes a re-entrant lock. Arguments: owner, seconds.
    ReentrantLock,
    /// Gives a re-entrant lock back. Argument: owner.
    ReentrantUnlock,
    /// Renews a re-entrant lock. Arguments: owner, seconds.
    ReentrantRenew,
    /// Takes a lock as Redisson does. Arguments: lease in milliseconds, owner.
    RedissonLock,
    /// Gives a lock back as Redisson does, and notifies its channel. Arguments: channel, lease in milliseconds, owner.
    RedissonUnlock,
    /// Renews a lock as Redisson does. Arguments: lease in milliseconds, owner.
    RedissonRenew,
}

impl Script {
    /// All scripts.
    pub const ALL: [Self; 7] = [
        Self::CompareAndDelete,
        Self::ReentrantLock,
        Self::ReentrantUnlock,
        Self::ReentrantRenew,
        Self::RedissonLock,
        Self::RedissonUnlock,
        Self::RedissonRenew,
    ];

    /// Returns the name of the script in a timeline.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CompareAndDelete => "compare-and-delete",
            Self::ReentrantLock | Self::RedissonLock => "lock",
            Self::ReentrantUnlock | Self::RedissonUnlock => "unlock",
            Self::ReentrantRenew | Self::RedissonRenew => "renew",
        }
    }

    /// Returns the text of the script.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::CompareAndDelete => include_str!("lua/compare_and_delete.lua"),
            Self::ReentrantLock => include_str!("lua/reentrant_lock.lua"),
            Self::ReentrantUnlock => include_str!("lua/reentrant_unlock.lua"),
            Self::ReentrantRenew => include_str!("lua/reentrant_renew.lua"),
            Self::RedissonLock => include_str!("lua/redisson_lock.lua"),
            Self::RedissonUnlock => include_str!("lua/redisson_unlock.lua"),
            Self::RedissonRenew => include_str!("lua/redisson_renew.lua"),
        }
    }

    /// Carries the script out. Returns the reply, and the messages with their channels.
    pub(super) fn run(self, keys: &mut Keys<'_>, key: &str, arguments: &[String]) -> (Reply, Vec<(String, Message)>) {
        let argument = |n: usize| arguments.get(n).map_or("", String::as_str);
        let number = |n: usize| argument(n).parse::<u64>().unwrap_or(0);
        let mut messages = Vec::new();
        let reply = match self {
            Self::CompareAndDelete => match keys.get(key).as_deref() == Some(argument(0)) {
                true => Reply::Number(keys.del(key)),
                false => Reply::Number(0),
            },
            Self::ReentrantLock => match !keys.exists(key) || keys.hexists(key, argument(0)) {
                true => {
                    keys.hincrby(key, argument(0), 1);
                    keys.pexpire(key, number(1) * 1000);
                    Reply::Number(1)
                }
                false => Reply::Number(0),
            },
            Self::ReentrantUnlock if !keys.hexists(key, argument(0)) => Reply::Nil,
            Self::ReentrantUnlock => match keys.hincrby(key, argument(0), -1) {
                0 => Reply::Number(keys.del(key)),
                _ => Reply::Number(0),
            },
            Self::ReentrantRenew => match keys.hexists(key, argument(0)) {
                true => Reply::Number(keys.pexpire(key, number(1) * 1000)),
                false => Reply::Number(0),
            },
            Self::RedissonLock => match !keys.exists(key) || keys.hexists(key, argument(1)) {
                true => {
                    keys.hincrby(key, argument(1), 1);
                    keys.pexpire(key, number(0));
                    Reply::Nil
                }
                false => Reply::Number(keys.pttl(key)),
            },
            Self::RedissonUnlock if !keys.hexists(key, argument(2)) => Reply::Nil,
            Self::RedissonUnlock => match keys.hincrby(key, argument(2), -1) > 0 {
                true => {
                    keys.pexpire(key, number(1));
                    Reply::Number(0)
                }
                false => {
                    keys.del(key);
                    messages.push((argument(0).to_owned(), Message::Text("unlocked".into())));
                    Reply::Number(1)
                }
            },
            Self::RedissonRenew => match keys.hexists(key, argument(1)) {
                true => {
                    keys.pexpire(key, number(0));
                    Reply::Number(1)
                }
                false => Reply::Number(0),
            },
        };
        (reply, messages)
    }
}
