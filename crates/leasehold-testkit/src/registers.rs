//! What a lock protects: two registers on a server of their own, which count what their writers do.
//!
//! One refuses a token below the largest that it has seen: with it, a lock may fail and nothing is lost. The other
//! refuses nothing, as most things in the world do: with it, what a lock's failure costs is counted.
//!
//! The registers are on another server than the locks, or the faults of the one would excuse the other. A simulation has
//! them [in memory](InMemory), and puts its own way to them around that.

use std::io;
use std::time::Duration;

use crate::history::{Answered, Event, Fenced, Recorder};
use crate::resp::{Resp, Value};

/// Counts the write if its token is not below the mark, and raises the mark. Answers the number of the write, or 0.
const FENCED: &str = "
local mark = tonumber(redis.call('HGET', KEYS[1], 'mark') or '0')
if tonumber(ARGV[1]) < mark then return 0 end
redis.call('HSET', KEYS[1], 'mark', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'count', 1)
";

const PATIENCE: Duration = Duration::from_secs(10);

/// Both registers of one name, in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct InMemory {
    /// The largest token that the fenced one has seen.
    mark: u64,
    /// How many writes the fenced one has accepted.
    fenced: u64,
    /// What the other one has.
    plain: u64,
}

impl InMemory {
    /// Writes to the fenced register.
    pub fn write_fenced(&mut self, token: u64) -> Fenced {
        if token < self.mark {
            return Fenced::Refused;
        }
        (self.mark, self.fenced) = (token, self.fenced + 1);
        Fenced::Accepted(self.fenced)
    }

    /// Reads the other register.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.plain
    }

    /// Writes to the other register.
    pub fn write(&mut self, number: u64) {
        self.plain = number;
    }

    /// What both have at the end.
    #[must_use]
    pub fn finals(&self, name: &str) -> [Event; 2] {
        let (fenced, counted) = (name.to_owned(), name.to_owned());
        [
            Event::FinalFenced { name: fenced, count: self.fenced },
            Event::FinalCounted { name: counted, count: self.plain },
        ]
    }
}

/// A connection to the registers. Its calls block.
#[derive(Debug)]
pub struct Registers {
    port: u16,
    resp: Option<Resp>,
}

impl Registers {
    /// The registers on the server at this port of 127.0.0.1.
    #[must_use]
    pub fn at(port: u16) -> Self {
        Self { port, resp: None }
    }

    /// Writes to the fenced register.
    pub fn write_fenced(&mut self, name: &str, token: u64) -> Fenced {
        let answer = self.ask(&["EVAL", FENCED, "1", &format!("fenced:{name}"), &token.to_string()]);
        match answer.map(|value| value.int()) {
            Ok(Some(0)) => Fenced::Refused,
            Ok(Some(write)) => Fenced::Accepted(u64::try_from(write).expect("a count is not negative")),
            Ok(None) | Err(_) => Fenced::Unknown,
        }
    }

    /// Reads the other register; `None` if no answer came.
    pub fn read(&mut self, name: &str) -> Option<u64> {
        match self.ask(&["GET", &format!("plain:{name}")]) {
            Ok(Value::Nil) => Some(0),
            Ok(value) => u64::try_from(value.int()?).ok(),
            Err(_) => None,
        }
    }

    /// Writes to the other register.
    pub fn write(&mut self, name: &str, number: u64) -> Answered {
        match self.ask(&["SET", &format!("plain:{name}"), &number.to_string()]) {
            Ok(Value::Status(_)) => Answered::Acknowledged,
            Ok(_) | Err(_) => Answered::Unknown,
        }
    }

    /// Takes down what both have at the end, when nobody writes any more.
    ///
    /// # Panics
    /// When they cannot be read.
    #[track_caller]
    pub fn record_final(&mut self, name: &str, recorder: &Recorder) {
        let fenced = self.ask(&["HGET", &format!("fenced:{name}"), "count"]).expect("the registers answer at the end");
        let count = u64::try_from(fenced.int().unwrap_or(0)).expect("a count is not negative");
        recorder.record(Event::FinalFenced { name: name.into(), count });
        let count = self.read(name).expect("the registers answer at the end");
        recorder.record(Event::FinalCounted { name: name.into(), count });
    }

    /// After a failure the connection is given up: the answer to this request could be taken for that to the next.
    fn ask(&mut self, command: &[&str]) -> io::Result<Value> {
        let mut resp = match self.resp.take() {
            Some(resp) => resp,
            None => Resp::try_connect(self.port, PATIENCE)?,
        };
        let answer = resp.try_command(command)?;
        self.resp = Some(resp);
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_memory_one_refuses_old_tokens_and_the_other_nothing() {
        let mut register = InMemory::default();
        let answers = [3, 5, 3, 5].map(|token| register.write_fenced(token));
        assert_eq!(answers, [Fenced::Accepted(1), Fenced::Accepted(2), Fenced::Refused, Fenced::Accepted(3)]);
        register.write(7);
        register.write(2);
        assert_eq!(register.read(), 2);
        let [fenced, counted] = register.finals("n");
        assert!(matches!(fenced, Event::FinalFenced { name, count: 3 } if name == "n"));
        assert!(matches!(counted, Event::FinalCounted { name, count: 2 } if name == "n"));
    }
}
