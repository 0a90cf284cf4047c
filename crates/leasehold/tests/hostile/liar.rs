//! A server that lies: the front of the test kit behind a real listener. Its replies are replaced from some request on.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold::seam::{Family, Script, Source};
use leasehold_testkit::front::{Client, Front, What, request};

/// The bytes that the server sends in place of the reply.
#[derive(Clone, Debug)]
pub(crate) enum Says {
    /// These bytes, once for each request.
    Instead(Vec<u8>),
    /// These bytes, and then the reply.
    Before(Vec<u8>),
    /// The reply, twice.
    Twice,
    /// The first half of the reply, and nothing more on this connection.
    HalfAndSilence,
    /// The first half of the reply, and the end of the connection.
    HalfAndEnd,
    /// Nothing more on this connection.
    Silence,
    /// The first bytes, and then the others without an end, as fast as the client takes them.
    Endless(Vec<u8>, Vec<u8>),
}

/// The first request with a lie: the name of a command or of a script, `return` (a release or a leave) or `push`.
pub(crate) type Lie = (&'static str, Says);

pub(crate) struct Liar {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    front: Mutex<Front>,
    lie: Mutex<Option<Lie>>,
    streams: Mutex<BTreeMap<Client, TcpStream>>,
    lies: AtomicU64,
    /// How many bytes of endless lies were sent.
    endless: AtomicU64,
}

impl Liar {
    /// Starts a server that sends the real replies.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            front: Mutex::new(Front::new(7)),
            lie: Mutex::default(),
            streams: Mutex::default(),
            lies: AtomicU64::new(0),
            endless: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&shared);
        // The thread ends with the process: it cannot be joined while it waits for a connection.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&accepting);
                std::thread::spawn(move || shared.serve(stream.unwrap()));
            }
        });
        Self { port, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Sends this lie from now on.
    pub(crate) fn lie(&self, lie: Lie) {
        *self.shared.lie() = Some(lie);
    }

    /// Sends the real replies again. A connection on which the server fell silent stays silent.
    pub(crate) fn tell_the_truth(&self) {
        *self.shared.lie() = None;
    }

    /// Returns how often it lied.
    pub(crate) fn lies(&self) -> u64 {
        self.shared.lies.load(Ordering::Relaxed)
    }

    /// Returns how many bytes of endless lies were taken.
    pub(crate) fn endless(&self) -> u64 {
        self.shared.endless.load(Ordering::Relaxed)
    }

    /// Writes these bytes to every connection.
    pub(crate) fn write_to_all(&self, bytes: &[u8]) {
        for stream in self.shared.streams.lock().unwrap().values_mut() {
            let _gone = stream.write_all(bytes);
        }
    }

    /// Returns the channels that have a subscriber.
    pub(crate) fn channels(&self) -> Vec<String> {
        self.shared.front.lock().unwrap().channels()
    }
}

impl Shared {
    fn lie(&self) -> MutexGuard<'_, Option<Lie>> {
        self.lie.lock().unwrap()
    }

    fn serve(&self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let client = self.front.lock().unwrap().connect();
        self.streams.lock().unwrap().insert(client, stream.try_clone().unwrap());
        let (mut unread, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
        'alive: while let Ok(len @ 1..) = stream.read(&mut chunk) {
            unread.extend_from_slice(&chunk[..len]);
            while let Ok(Some((words, len))) = request(&unread) {
                unread.drain(..len);
                if self.answer(client, &words).is_err() {
                    break 'alive;
                }
            }
        }
        self.front.lock().unwrap().hang_up(client);
        self.streams.lock().unwrap().remove(&client);
        let _gone = stream.shutdown(Shutdown::Both);
    }

    fn answer(&self, client: Client, words: &[Vec<u8>]) -> Result<(), End> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let sent = self.front.lock().unwrap().answer(client, u64::try_from(now.as_micros()).unwrap(), words);
        let stage = stage(words);
        for sent in sent {
            let is_push = sent.what == What::Push;
            let stage = if is_push { "push" } else { stage };
            let Some(mut stream) = self.streams.lock().unwrap().get(&sent.to).and_then(|s| s.try_clone().ok()) else {
                continue;
            };
            let lie = self.lie().clone().filter(|(at, _)| *at == stage && (is_push || sent.to == client));
            match lie {
                None => stream.write_all(&sent.bytes)?,
                Some((_, says)) => self.say(&mut stream, &says, &sent.bytes)?,
            }
        }
        Ok(())
    }

    fn say(&self, stream: &mut TcpStream, says: &Says, truth: &[u8]) -> Result<(), End> {
        self.lies.fetch_add(1, Ordering::Relaxed);
        match says {
            Says::Instead(bytes) => stream.write_all(bytes)?,
            Says::Before(bytes) => stream.write_all(&[bytes, truth].concat())?,
            Says::Twice => stream.write_all(&[truth, truth].concat())?,
            Says::HalfAndSilence => {
                stream.write_all(&truth[..truth.len() / 2])?;
                silence(stream);
            }
            Says::HalfAndEnd => {
                stream.write_all(&truth[..truth.len() / 2])?;
                return Err(End);
            }
            Says::Silence => silence(stream),
            Says::Endless(first, then) => {
                stream.write_all(first)?;
                while self.lie().is_some() {
                    stream.write_all(then)?;
                    self.endless.fetch_add(then.len() as u64, Ordering::Relaxed);
                }
                return Err(End);
            }
        }
        Ok(())
    }
}

/// The connection ends.
struct End;

impl From<std::io::Error> for End {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

/// Reads everything and sends nothing, until the client closes the connection.
fn silence(stream: &mut TcpStream) {
    let mut chunk = [0; 4096];
    while let Ok(1..) = stream.read(&mut chunk) {}
}

/// Returns the stage of a request.
fn stage(words: &[Vec<u8>]) -> &'static str {
    let word = |at: usize| words.get(at).map(|word| String::from_utf8_lossy(word)).unwrap_or_default();
    match &*word(0) {
        "EVALSHA" | "EVAL" => {
            let Source { text, sha } = Family::Locks.question();
            let is = |text: &str, sha: &str| sha == word(1) || text == word(1);
            let known = Family::Locks.scripts().find(|script| is(script.source(), script.sha()));
            match known.map_or("unknown", Script::name) {
                "unknown" if is(text, sha) => "rights",
                // A held lock is returned by a leave if an acquire of it got no reply in time.
                "release" | "leave" => "return",
                name => name,
            }
        }
        "HELLO" => "HELLO",
        "ROLE" => "ROLE",
        "INFO" => "INFO",
        "TIME" => "TIME",
        "SUBSCRIBE" => "SUBSCRIBE",
        "PUBLISH" => "PUBLISH",
        _ => "other",
    }
}
