//! The connection of one thread to one server.

use std::collections::VecDeque;
use std::io;

use redis::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::server::packed;
use crate::redis::{Command, Message, Reply};

/// A connection. Messages that arrive before a reply are kept.
#[derive(Debug)]
pub(super) struct Connection<S> {
    stream: S,
    bytes: Vec<u8>,
    messages: VecDeque<Message>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, bytes: Vec::new(), messages: VecDeque::new() }
    }

    /// Sends a command, and waits for its reply.
    pub(super) async fn call(&mut self, command: &Command) -> io::Result<Reply> {
        self.stream.write_all(&packed(&command.words())).await?;
        loop {
            match as_message(self.value().await?) {
                Ok(message) => self.messages.push_back(message),
                Err(value) => return reply(&value),
            }
        }
    }

    /// Waits for the next message.
    pub(super) async fn message(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = self.messages.pop_front() {
                return Ok(message);
            }
            if let Ok(message) = as_message(self.value().await?) {
                return Ok(message);
            }
        }
    }

    /// Discards the messages that have been read.
    pub(super) fn forget_messages(&mut self) {
        self.messages.clear();
    }

    /// Reads the next value. If the future is dropped, no byte is lost.
    async fn value(&mut self) -> io::Result<Value> {
        loop {
            if let Some(length) = first_value(&self.bytes) {
                let value = redis::parse_redis_value(&self.bytes[..length]).map_err(io::Error::other);
                self.bytes.drain(..length);
                return value;
            }
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Returns the length of the first value, if it is complete.
pub(super) fn first_value(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' => {
            let length = usize::try_from(number()?).map_or(line, |length| line + length + 2);
            (bytes.len() >= length).then_some(length)
        }
        b'*' => (0..number()?).try_fold(line, |at, _| Some(at + first_value(bytes.get(at..)?)?)),
        _ => Some(line),
    }
}

/// Returns the message, if the value is one.
fn as_message(value: Value) -> Result<Message, Value> {
    match &value {
        Value::Array(parts) => match &parts[..] {
            [Value::BulkString(kind), _, Value::BulkString(text)] if kind == b"message" => {
                Ok(Message::Text(String::from_utf8_lossy(text).into_owned()))
            }
            _ => Err(value),
        },
        _ => Err(value),
    }
}

pub(super) fn reply(value: &Value) -> io::Result<Reply> {
    Ok(match value {
        Value::Okay | Value::Array(_) => Reply::Ok,
        Value::Nil => Reply::Nil,
        Value::Int(number) => Reply::Number(*number),
        Value::BulkString(text) => Reply::Text(String::from_utf8_lossy(text).into_owned()),
        other => return Err(io::Error::other(format!("the server replied {other:?}"))),
    })
}
