//! What a lock protects: two registers on a server of their own, which count what their writers do.
//!
//! One refuses a token below the largest that it has seen: with it, a lock may fail and nothing is lost. The other
//! refuses nothing, as most things in the world do: with it, what a lock's failure costs is counted.
//!
//! The registers are on another server than the locks, or the faults of the one would excuse the other.

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
