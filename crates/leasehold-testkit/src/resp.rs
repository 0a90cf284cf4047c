//! Redis' wire format (RESP), as much of it as tests need: it reads values of both versions, writes commands, and has a
//! small blocking client, so that a test can examine a server independently of the crate under test.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A value as Redis sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing: a null string, a null array, or RESP3's null.
    Nil,
    /// A number.
    Int(i64),
    /// A status such as `OK`. RESP3's booleans, doubles and big numbers are read as their text.
    Status(String),
    /// An error.
    Error(String),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// An array. RESP3's sets are read as such, and its maps as key, value, key, value.
    Array(Vec<Value>),
    /// A message that answers no command (RESP3).
    Push(Vec<Value>),
}

/// Bytes that are not RESP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Garbled(String);

impl fmt::Display for Garbled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not RESP: {}", self.0)
    }
}

impl std::error::Error for Garbled {}

/// How deep arrays may be nested before we call it garbled. Redis' own answers stay below ten.
const DEPTH: usize = 32;
/// Redis' own bound on a string.
const BULK_MAX: usize = 512 << 20;

impl Value {
    /// Reads the value that `bytes` begin with, and how many bytes it takes; `None` when its end has not arrived yet.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Garbled> {
        let mut at = 0;
        Ok(value(bytes, &mut at, DEPTH)?.map(|value| (value, at)))
    }

    /// The text of a string or status; `None` for anything else.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Status(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The number, also one that is written as a string; `None` for anything else.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            other => other.text()?.parse().ok(),
        }
    }

    /// The elements of an array or push; `None` for anything else.
    #[must_use]
    pub fn items(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) | Self::Push(items) => Some(items),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Bulk(text.into())
    }
}

/// The next line, without its end; `None` when the end has not arrived.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = &bytes[*at..];
    let len = rest.windows(2).position(|pair| pair == b"\r\n")?;
    *at += len + 2;
    Some(&rest[..len])
}

fn number(line: &[u8]) -> Result<i64, Garbled> {
    std::str::from_utf8(line)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| Garbled(format!("a number expected in {:?}", String::from_utf8_lossy(line))))
}

fn value(bytes: &[u8], at: &mut usize, depth: usize) -> Result<Option<Value>, Garbled> {
    let Some(line) = line(bytes, at) else { return Ok(None) };
    let Some((&kind, rest)) = line.split_first() else { return Err(Garbled("an empty line".into())) };
    let text = || String::from_utf8_lossy(rest).into_owned();
    match kind {
        b'+' | b',' | b'(' | b'#' => Ok(Some(Value::Status(text()))),
        b'-' => Ok(Some(Value::Error(text()))),
        b':' => Ok(Some(Value::Int(number(rest)?))),
        b'_' => Ok(Some(Value::Nil)),
        b'$' | b'=' => bulk(bytes, at, number(rest)?, Value::Bulk),
        b'!' => bulk(bytes, at, number(rest)?, |error| Value::Error(String::from_utf8_lossy(&error).into_owned())),
        b'*' | b'~' => items(bytes, at, number(rest)?, depth, Value::Array),
        b'%' => items(bytes, at, number(rest)?.saturating_mul(2), depth, Value::Array),
        b'>' => items(bytes, at, number(rest)?, depth, Value::Push),
        // An attribute describes the value after it, and that value is the answer.
        b'|' => match items(bytes, at, number(rest)?.saturating_mul(2), depth, Value::Array)? {
            Some(_) => value(bytes, at, depth),
            None => Ok(None),
        },
        _ => Err(Garbled(format!("{:?}", String::from_utf8_lossy(line)))),
    }
}

fn bulk(bytes: &[u8], at: &mut usize, len: i64, make: fn(Vec<u8>) -> Value) -> Result<Option<Value>, Garbled> {
    let Ok(len) = usize::try_from(len) else { return Ok(Some(Value::Nil)) };
    if len > BULK_MAX {
        return Err(Garbled(format!("a string of {len} bytes")));
    }
    let Some(rest) = bytes.get(*at..*at + len + 2) else { return Ok(None) };
    if &rest[len..] != b"\r\n" {
        return Err(Garbled("a string longer than it says".into()));
    }
    *at += len + 2;
    Ok(Some(make(rest[..len].to_vec())))
}

fn items(
    bytes: &[u8],
    at: &mut usize,
    count: i64,
    depth: usize,
    make: fn(Vec<Value>) -> Value,
) -> Result<Option<Value>, Garbled> {
    let Ok(count) = usize::try_from(count) else { return Ok(Some(Value::Nil)) };
    let Some(depth) = depth.checked_sub(1) else { return Err(Garbled(format!("arrays nested over {DEPTH} deep"))) };
    let mut items = Vec::new();
    for _ in 0..count {
        match value(bytes, at, depth)? {
            Some(item) => items.push(item),
            None => return Ok(None),
        }
    }
    Ok(Some(make(items)))
}

/// Formats a command for a server.
#[must_use]
pub fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        let argument = argument.as_ref();
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// A blocking connection to a server, by which a test examines it.
#[derive(Debug)]
pub struct Resp {
    stream: TcpStream,
    unread: Vec<u8>,
}

const PATIENCE: Duration = Duration::from_secs(10);

impl Resp {
    /// Connects to a port of this machine. The timeout of every read and write is ten seconds.
    ///
    /// # Panics
    /// If nothing listens there. [`Resp::try_connect`] returns an error instead.
    #[must_use]
    #[track_caller]
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port, PATIENCE).unwrap_or_else(|e| panic!("no connection to 127.0.0.1:{port}: {e}"))
    }

    /// Connects. `patience` is the timeout of the connection and of every later read and write.
    pub fn try_connect(port: u16, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), patience)?;
        stream.set_nodelay(true)?;
        let resp = Self { stream, unread: Vec::new() };
        resp.set_patience(patience)?;
        Ok(resp)
    }

    /// Sets the timeout of later reads and writes.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(patience))?;
        self.stream.set_write_timeout(Some(patience))
    }

    /// Sends a command and returns the answer. An error that the server answers is a value.
    ///
    /// # Panics
    /// If the connection fails or the answer takes too long. [`Resp::try_command`] returns an error instead.
    #[track_caller]
    pub fn command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Value {
        self.try_command(arguments).unwrap_or_else(|e| {
            let shown: Vec<_> = arguments.iter().map(|a| String::from_utf8_lossy(a.as_ref())).collect();
            panic!("no answer to {}: {e}", shown.join(" "))
        })
    }

    /// Sends a command and returns the answer.
    pub fn try_command<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<Value> {
        self.send(arguments)?;
        self.receive()
    }

    /// Sends a command without waiting for the answer.
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> io::Result<()> {
        self.stream.write_all(&encode(arguments))
    }

    /// Returns the next value that the server sends: an answer, or a message.
    pub fn receive(&mut self) -> io::Result<Value> {
        loop {
            if let Some((value, len)) = Value::parse(&self.unread).map_err(io::Error::other)? {
                self.unread.drain(..len);
                return Ok(value);
            }
            let mut chunk = [0; 4096];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.unread.extend_from_slice(&chunk[..n]),
                // A signal interrupts a read that has a time limit.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(text: &str) -> Value {
        let (value, len) = Value::parse(text.as_bytes()).unwrap().expect("a whole value");
        assert_eq!(len, text.len());
        value
    }

    #[test]
    fn both_versions_are_parsed() {
        assert_eq!(whole("+OK\r\n"), Value::Status("OK".into()));
        assert_eq!(whole("-ERR no\r\n"), Value::Error("ERR no".into()));
        assert_eq!(whole(":-7\r\n"), Value::Int(-7));
        assert_eq!(whole("$5\r\na\r\nbc\r\n"), Value::from("a\r\nbc"));
        assert_eq!(whole("$-1\r\n"), Value::Nil);
        assert_eq!(whole("*-1\r\n"), Value::Nil);
        assert_eq!(whole("_\r\n"), Value::Nil);
        assert_eq!(whole("*2\r\n:1\r\n*1\r\n_\r\n"), Value::Array(vec![Value::Int(1), Value::Array(vec![Value::Nil])]));
        assert_eq!(whole("%1\r\n+a\r\n:1\r\n"), Value::Array(vec![Value::Status("a".into()), Value::Int(1)]));
        assert_eq!(whole(">1\r\n+hi\r\n"), Value::Push(vec![Value::Status("hi".into())]));
        assert_eq!(whole("|1\r\n+ttl\r\n:3\r\n:9\r\n"), Value::Int(9));
        assert_eq!(whole("#t\r\n"), Value::Status("t".into()));
        assert_eq!(whole("!4\r\nERR!\r\n"), Value::Error("ERR!".into()));
    }

    #[test]
    fn an_incomplete_value_is_not_parsed() {
        let text = b"*3\r\n$3\r\nSET\r\n%1\r\n+k\r\n>1\r\n:1\r\n|1\r\n+a\r\n+b\r\n$0\r\n\r\n";
        for len in 0..text.len() {
            assert_eq!(Value::parse(&text[..len]), Ok(None), "{len} bytes");
        }
        assert!(Value::parse(text).unwrap().is_some());
    }

    #[test]
    fn bytes_that_are_not_resp_are_refused() {
        for text in
            ["hello\r\n", "\r\n", ":x\r\n", "$1\r\nabc\r\n", "$9223372036854775807\r\n", &"*1\r\n".repeat(DEPTH + 1)]
        {
            assert!(Value::parse(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn commands_are_arrays_of_strings() {
        assert_eq!(encode(&["GET", "ä"]), b"*2\r\n$3\r\nGET\r\n$2\r\n\xc3\xa4\r\n");
    }
}
