//! The model of a server, and a real one, reply alike to random commands.
//!
//! A number above 1 in a reply is a time that is left.

use std::hash::{BuildHasher as _, RandomState};
use std::thread;
use std::time::{Duration, Instant};

use super::server::{Equipment, Server};
use super::wire::reply;
use crate::redis::{Command, Reply, Script, Server as Model};

/// The number of commands. Half of the keys of the specimens are two keys here, so that commands meet.
const COMMANDS: usize = 4000;
/// No command is sent while a key is about to expire: the two servers would see it at different times.
const NEAR_MS: u64 = 40;

/// A sequence of random numbers that depends on its seed alone.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        // Xorshift, from Marsaglia's paper of 2003.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).expect("it is below a usize")
    }

    fn text(&mut self, texts: &[&str]) -> String {
        texts[self.below(texts.len())].to_owned()
    }

    fn command(&mut self) -> Command {
        let (key, value) = (self.text(&["a", "b"]), self.text(&["x", "y"]));
        match self.below(9) {
            0 => Command::Get(key),
            1 => Command::SetNx(key, value),
            2 => Command::SetNxEx(key, value, 1 + self.below(2) as u64),
            3 => Command::SetNxPx(key, value, 150 + self.below(200) as u64),
            4 => Command::GetSet(key, value),
            5 => Command::Del(key),
            6 => Command::Expire(key, 1 + self.below(2) as u64),
            _ => self.script(key, value),
        }
    }

    /// A script. Scripts with hashes have keys of their own: on a key of the wrong type Redis refuses them, and no specimen
    /// mixes the two.
    fn script(&mut self, key: String, owner: String) -> Command {
        let script = Script::ALL[self.below(Script::ALL.len())];
        let lease_ms = self.text(&["150", "400"]);
        let (key, arguments) = match script {
            Script::CompareAndDelete => (key, vec![owner]),
            Script::ReentrantLock | Script::ReentrantRenew => (format!("hash:{key}"), vec![owner, "1".into()]),
            Script::ReentrantUnlock => (format!("hash:{key}"), vec![owner]),
            Script::RedissonLock | Script::RedissonRenew => (format!("hash:{key}"), vec![lease_ms, owner]),
            Script::RedissonUnlock => (format!("hash:{key}"), vec!["channel".into(), lease_ms, owner]),
        };
        Command::Eval(script, key, arguments)
    }
}

#[test]
fn the_model_of_a_server_replies_like_a_real_one() {
    let seed = RandomState::new().hash_one(0) | 1;
    eprintln!("seed {seed}");
    let (real, mut model, mut random) = (Server::start(Equipment::default()).unwrap(), Model::default(), Random(seed));
    let began = Instant::now();
    let now_ms = || u64::try_from(began.elapsed().as_millis()).unwrap();
    let mut kinds = [0; 4];
    for number in 0..COMMANDS {
        if number % 40 == 39 {
            thread::sleep(Duration::from_millis(60));
        }
        while model.deadlines_ms().any(|end_ms| end_ms.abs_diff(now_ms()) < NEAR_MS) {
            thread::sleep(Duration::from_millis(10));
        }
        let command = random.command();
        let words = command.words();
        let (modelled, _) = model.execute(now_ms(), 0, &command);
        let value = real.command(&words.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        let real = reply(&value).unwrap();
        assert!(agree(&modelled, &real), "seed {seed}, command {number}, {command}: {modelled:?} and {real:?}");
        kinds[match real {
            Reply::Ok => 0,
            Reply::Nil => 1,
            Reply::Number(_) => 2,
            _ => 3,
        }] += 1;
    }
    assert!(kinds.iter().all(|count| *count > COMMANDS / 100), "each kind of reply occurs: {kinds:?}");
}

/// Whether two replies are the same. A time that is left was read a moment later on the real server.
fn agree(modelled: &Reply, real: &Reply) -> bool {
    match (modelled, real) {
        (Reply::Number(modelled), Reply::Number(real)) if *modelled > 1 => modelled.abs_diff(*real) < NEAR_MS,
        _ => modelled == real,
    }
}
