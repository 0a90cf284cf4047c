//! A server that also speaks TLS, at a second port. The plain port stays open for the test itself; the code under test
//! gets the URL of the TLS port.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Builder, RedisServer};
use crate::certificates::{Authority, Identity};
use crate::port::{Port, free_port};
use crate::resp::Value;

/// The requirement of the server for clients that connect by TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// Nothing.
    Anybody,
    /// A certificate signed by the server's own authority.
    Certified,
}

#[derive(Clone, Debug)]
pub(super) struct Tls {
    authority: String,
    identity: Identity,
    clients: Clients,
}

const AUTHORITY: &str = "ca.pem";
const CERTIFICATE: &str = "server.pem";
const KEY: &str = "server.key";

impl Tls {
    /// Writes the files into the server's directory, and reserves a port.
    pub(super) fn prepare(&self, dir: &Path) -> Port {
        let files =
            [(AUTHORITY, &self.authority), (CERTIFICATE, &self.identity.certificate), (KEY, &self.identity.key)];
        for (name, content) in files {
            fs::write(dir.join(name), content).expect("our temporary directory can be written");
        }
        free_port()
    }

    pub(super) fn configure(&self, port: &Port, set: &mut impl FnMut(&str, &str)) {
        set("tls-port", &port.number().to_string());
        set("tls-ca-cert-file", AUTHORITY);
        set("tls-cert-file", CERTIFICATE);
        set("tls-key-file", KEY);
        set("tls-auth-clients", if self.clients == Clients::Certified { "yes" } else { "no" });
    }
}

impl Builder {
    /// Adds a second port for TLS, with the identity of the server, the authority that signs the accepted clients, and
    /// whether clients need a certificate at all.
    #[must_use]
    pub fn tls(mut self, authority: &Authority, identity: &Identity, clients: Clients) -> Self {
        self.tls = Some(Tls { authority: authority.pem(), identity: identity.clone(), clients });
        self
    }
}

impl RedisServer {
    /// Starts a server with TLS for `localhost` and `127.0.0.1`, signed by an authority of its own.
    #[must_use]
    #[track_caller]
    pub fn start_tls() -> Self {
        let authority = Authority::new("Leasehold's tests");
        let identity = authority.server(&["localhost", "127.0.0.1"]);
        Self::builder().tls(&authority, &identity, Clients::Anybody).start()
    }

    /// Returns its port for TLS.
    ///
    /// # Panics
    /// If it was started without [`Builder::tls`].
    #[must_use]
    #[track_caller]
    pub fn tls_port(&self) -> u16 {
        self.tls_port.as_ref().expect("a server with TLS is started with `RedisServer::builder().tls(…)`").number()
    }

    /// Returns its URL for TLS, which names its authority. Further parameters follow after a `&`.
    #[must_use]
    #[track_caller]
    pub fn tls_url(&self) -> String {
        let password = self.settings.password.as_ref().map_or(String::new(), |password| format!(":{password}@"));
        format!("rediss://{password}localhost:{}?ca={}", self.tls_port(), self.authority().display())
    }

    /// Returns the file of its authority.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.dir().join(AUTHORITY)
    }

    /// Presents another identity from now on, to new connections.
    #[track_caller]
    pub fn set_identity(&self, identity: &Identity) {
        fs::write(self.dir().join(CERTIFICATE), &identity.certificate).expect("our directory can be written");
        fs::write(self.dir().join(KEY), &identity.key).expect("our directory can be written");
        let reply = self.command(&["CONFIG", "SET", "tls-cert-file", CERTIFICATE, "tls-key-file", KEY]);
        assert_eq!(reply, Value::Status("OK".into()));
    }
}
