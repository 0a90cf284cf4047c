//! The resource that a lock protects: two registers on a server of their own, which count the writes.
//!
//! The fenced register refuses a token below the largest that it has seen: even if the lock fails, no update is lost.
//! The unfenced register refuses nothing, like most real resources: it shows the cost of a lock's failure.
//!
//! The registers are on another server than the locks, or the faults of one would excuse the other. A simulation has
//! them [in memory](InMemory), behind its own simulated network.

use std::io;
use std::time::Duration;

use crate::history::{Answered, Event, Fenced, Recorder};
use crate::resp::{Resp, Value};

/// Counts the write if its token is not below the mark, and raises the mark. Returns the number of the write, or 0.
const FENCED: &str = "
local mark = tonumber(redis.call('HGET', KEYS[1], 'mark') or '0')
if tonumber(ARGV[1]) < mark then return 0 end
redis.call('HSET', KEYS[1], 'mark', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'count', 1)
";

const TIMEOUT: Duration = Duration::from_secs(10);

/// Both registers of one name, in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct InMemory {
    /// The largest token that the fenced register has seen.
    mark: u64,
    /// The number of writes that the fenced register has accepted.
    fenced: u64,
    /// The number in the unfenced register.
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

    /// Reads the unfenced register.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.plain
    }

    /// Writes to the unfenced register.
    pub fn write(&mut self, number: u64) {
        self.plain = number;
    }

    /// Returns the final numbers of both registers.
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
    /// Returns the registers on the server at this port of 127.0.0.1.
    #[must_use]
    pub fn at(port: u16) -> Self {
        Self { port, resp: None }
    }

    /// Writes to the fenced register.
    pub fn write_fenced(&mut self, name: &str, token: u64) -> Fenced {
        let answer = self.command(&["EVAL", FENCED, "1", &format!("fenced:{name}"), &token.to_string()]);
        match answer.map(|value| value.int()) {
            Ok(Some(0)) => Fenced::Refused,
            Ok(Some(write)) => Fenced::Accepted(u64::try_from(write).expect("a count is not negative")),
            Ok(None) | Err(_) => Fenced::Unknown,
        }
    }

    /// Reads the unfenced register; `None` if no reply arrived.
    pub fn read(&mut self, name: &str) -> Option<u64> {
        match self.command(&["GET", &format!("plain:{name}")]) {
            Ok(Value::Nil) => Some(0),
            Ok(value) => u64::try_from(value.int()?).ok(),
            Err(_) => None,
        }
    }

    /// Writes to the unfenced register.
    pub fn write(&mut self, name: &str, number: u64) -> Answered {
        match self.command(&["SET", &format!("plain:{name}"), &number.to_string()]) {
            Ok(Value::Status(_)) => Answered::Acknowledged,
            Ok(_) | Err(_) => Answered::Unknown,
        }
    }

    /// Records the final numbers of both registers. Call it when all writers have finished.
    ///
    /// # Panics
    /// When they cannot be read.
    #[track_caller]
    pub fn record_final(&mut self, name: &str, recorder: &Recorder) {
        let fenced = self
            .command(&["HGET", &format!("fenced:{name}"), "count"])
            .expect("the registers are reachable at the end");
        let count = u64::try_from(fenced.int().unwrap_or(0)).expect("a count is not negative");
        recorder.record(Event::FinalFenced { name: name.into(), count });
        let count = self.read(name).expect("the registers are reachable at the end");
        recorder.record(Event::FinalCounted { name: name.into(), count });
    }

    /// Sends a command. After a failure the connection is dropped: a late reply could be taken for the reply to the next
    /// command.
    fn command(&mut self, command: &[&str]) -> io::Result<Value> {
        let mut resp = match self.resp.take() {
            Some(resp) => resp,
            None => Resp::try_connect(self.port, TIMEOUT)?,
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
    fn in_memory_the_fenced_register_refuses_old_tokens() {
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
