//! The rights that a Redis user needs, and the question whether it has them.
//!
//! If the connection itself lacks a right, the server names it when the client connects. If only a script needs the
//! right, the error comes when the script calls the command, and has no name. For some rights that is the first release
//! while somebody waits. So the client asks the server in the first exchange (`handshake.rs`).

use std::fmt;

/// The rights of one kind of client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rights {
    /// As ACL SETUSER takes them.
    commands: &'static str,
    /// The rights that only pools need, likewise.
    pools: &'static str,
    /// Keys and channels, likewise.
    patterns: &'static str,
}

/// The rights that locks need. SECURITY.md quotes them.
pub const RIGHTS: &str = "+eval +evalsha +script|load +get +mget +set +setrange +del +exists +type +hget +hmget +hset \
                          +hdel +pexpire +time +publish +subscribe +pubsub|numsub +info +role +select";
/// The rights that names of other kinds need beyond those of mutexes. A user who locks only mutexes does
/// not need them.
pub const POOL_RIGHTS: &str = "+hscan +unlink";
/// The rights that a node needs. With `+config|get` the client also sees that the node saves every change before it
/// replies.
pub const NODE_RIGHTS: &str = "+eval +evalsha +script|load +get +set +del +type +zadd +zrem +zrange +zmscore +zcard \
                               +zremrangebyrank +pexpire +time +publish +subscribe +pubsub|numsub +info +role +select";
/// The rights that a fence needs.
pub const FENCE_RIGHTS: &str = "+eval +evalsha +get +set +del +type +pttl +select";

impl Rights {
    pub(crate) const LOCKS: Self =
        Self { commands: RIGHTS, pools: POOL_RIGHTS, patterns: "~PREFIXlh1:* &PREFIXlh1:inbox:*" };
    pub(crate) const NODE: Self =
        Self { commands: NODE_RIGHTS, pools: "", patterns: "~PREFIXlq1:* ~PREFIXlq1q:* &PREFIXlq1:inbox:*" };
    pub(crate) const FENCE: Self = Self { commands: FENCE_RIGHTS, pools: "", patterns: "~KEY ~lhf:{KEY}*" };

    /// Returns the arguments of the question, about a key that stands for all.
    pub(super) fn arguments(&self, key: &str) -> Vec<String> {
        let word = |word: &&'static str| if *word == KEY { key.to_owned() } else { (*word).to_owned() };
        self.asked().map(|(_, words)| words.iter().map(word).collect::<Vec<_>>().join("\n")).collect()
    }

    /// Returns the names of the rights that are missing, if these commands of the question were refused. They are counted
    /// from 1.
    pub(super) fn missing(&self, refused: &[usize]) -> Vec<&'static str> {
        let asked: Vec<_> = self.asked().enumerate().collect();
        let is_refused = |at: usize| refused.contains(&(at + 1));
        let is_keyed = |words: &[&str]| words.contains(&KEY);
        // A user who has rights for some names only may not touch the key that stands for all. Then nothing is known about
        // the commands, and the first request shows which right is missing.
        let knows_keys = asked.iter().any(|(at, (_, words))| is_keyed(words) && !is_refused(*at));
        let missing = asked.iter().filter(|(at, (_, words))| is_refused(*at) && (knows_keys || !is_keyed(words)));
        missing.map(|(_, (right, _))| *right).collect()
    }

    /// Whether only requests about pools need this right.
    pub(super) fn is_for_pools(&self, right: &str) -> bool {
        self.pools.split(' ').any(|listed| listed == right)
    }

    fn asked(&self) -> impl Iterator<Item = &'static Command> {
        let is_listed =
            |right: &str| self.commands.split(' ').any(|listed| listed == right) || self.is_for_pools(right);
        COMMANDS.iter().filter(move |(right, _)| is_listed(right))
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (+select for a URL with a database number)", self.commands, self.patterns)
    }
}

/// A word of a command that is a key.
const KEY: &str = "KEY";

/// A right, and a command that needs it, with the smallest number of arguments: the server looks for the key among them.
type Command = (&'static str, &'static [&'static str]);

/// The commands that scripts call, and those that bring a script which a server has forgotten. The first exchange with the
/// server needs other rights, and shows by itself if one is missing.
const COMMANDS: [Command; 25] = [
    ("+evalsha", &["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
    ("+get", &["GET", KEY]),
    ("+mget", &["MGET", KEY]),
    ("+set", &["SET", KEY, "1"]),
    ("+setrange", &["SETRANGE", KEY, "0", "1"]),
    ("+del", &["DEL", KEY]),
    ("+exists", &["EXISTS", KEY]),
    ("+type", &["TYPE", KEY]),
    ("+hget", &["HGET", KEY, "1"]),
    ("+hmget", &["HMGET", KEY, "1"]),
    ("+hset", &["HSET", KEY, "1", "1"]),
    ("+hdel", &["HDEL", KEY, "1"]),
    ("+hscan", &["HSCAN", KEY, "0"]),
    ("+unlink", &["UNLINK", KEY]),
    ("+zadd", &["ZADD", KEY, "1", "1"]),
    ("+zrem", &["ZREM", KEY, "1"]),
    ("+zrange", &["ZRANGE", KEY, "0", "0"]),
    ("+zmscore", &["ZMSCORE", KEY, "1"]),
    ("+zcard", &["ZCARD", KEY]),
    ("+zremrangebyrank", &["ZREMRANGEBYRANK", KEY, "0", "0"]),
    ("+pexpire", &["PEXPIRE", KEY, "1"]),
    ("+time", &["TIME"]),
    ("+pubsub|numsub", &["PUBSUB", "NUMSUB", "1"]),
    ("+eval", &["EVAL", "return 1", "0"]),
    ("+script|load", &["SCRIPT", "LOAD", "return 1"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::scripts::Family;

    const FAMILIES: [(Family, Rights); 3] =
        [(Family::Locks, Rights::LOCKS), (Family::Pools, Rights::LOCKS), (Family::Node, Rights::NODE)];

    fn missing(refused: &[usize]) -> Vec<&'static str> {
        Rights::LOCKS.missing(refused)
    }

    #[test]
    fn rights_are_named_like_their_commands() {
        for (right, words) in COMMANDS {
            let name = words[..right.matches('|').count() + 1].join("|").to_lowercase();
            assert_eq!(right, format!("+{name}"));
        }
        assert_eq!(FAMILIES.map(|(_, rights)| rights.asked().count()), [19, 19, 16]);
    }

    /// A script that begins to call a command must bring its right with it, and the server is asked about it.
    #[test]
    fn every_command_of_a_script_is_in_the_list() {
        let mut seen = 0;
        let scripts = |(family, rights): (Family, Rights)| family.scripts().map(move |script| (family, script, rights));
        for (family, script, rights) in FAMILIES.into_iter().flat_map(scripts) {
            for before in ["call('", "call( '", "{ '"] {
                for (at, _) in script.source().match_indices(before) {
                    let name = script.source()[at + before.len()..].split('\'').next().expect("a first piece");
                    let right = format!("+{}", name.to_lowercase());
                    let is_named = |listed: &str| listed.split('|').next() == Some(&*right);
                    let is_for_pools = family == Family::Pools && rights.is_for_pools(&right);
                    let is_listed = rights.commands.split(' ').any(is_named) || is_for_pools;
                    assert!(is_listed, "{script:?} calls {name}: {right} is in no list");
                    let is_asked = rights.asked().any(|(asked, _)| is_named(asked));
                    assert!(
                        is_asked || right == "+publish",
                        "{script:?} calls {name}: the server is not asked about it"
                    );
                    seen += 1;
                }
            }
        }
        assert!(seen > 40, "only {seen} calls were found");
    }

    #[test]
    fn missing_rights_are_named() {
        assert_eq!(missing(&[]), [""; 0]);
        assert_eq!(missing(&[1, 4, 17]), ["+evalsha", "+set", "+pubsub|numsub"]);
        assert_eq!(missing(&[99]), [""; 0]);
        let every_key: Vec<usize> = (2..=15).collect();
        assert_eq!(missing(&every_key), [""; 0], "a user of other names");
        assert_eq!(missing(&[&every_key[..], &[16]].concat()), ["+time"]);
    }
}
