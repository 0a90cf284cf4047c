//! TLS over a socket of the `World`: which certificates are trusted and shown, and what a failed handshake means.
//!
//! Verification cannot be turned off. If somebody on the network path could grant a lock, it would protect nothing. For a
//! self-made certificate, name its authority with `?ca=`, which is not harder than to turn verification off.
//!
//! A client is made for one connection. Its files are read anew each time, and it uses the time of the `World` at that
//! moment. (Random numbers come from rustls: a simulation controls the bytes, but not these numbers.)

use std::error::Error as StdError;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::time_provider::TimeProvider;
use tokio_rustls::rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::named::{FileKind, Identity, Tls, content, wrong};
use crate::error::{Error, ErrorKind, Result};
use crate::world::Socket;

/// The largest file of certificates in bytes. The roots of a whole system have a quarter of that.
const PEM_MAX: usize = 1024 * 1024;

const CA: FileKind = FileKind { name: "CA file", parameter: "ca" };
const CERTIFICATE: FileKind = FileKind { name: "certificate file", parameter: "cert" };
const KEY: FileKind = FileKind { name: "key file", parameter: "key" };

/// The TLS configuration of one connection.
pub(super) struct Client {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
    shows_itself: Shows,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Nothing,
    Certificate,
}

/// The time at which certificates must be valid.
#[derive(Debug)]
struct At(UnixTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// Checks that a certificate can be valid for this host. No I/O.
pub(super) fn check(host: &str) -> Result<()> {
    server(host).map(drop)
}

fn server(host: &str) -> Result<ServerName<'static>> {
    let name = ServerName::try_from(host.to_owned());
    name.map_err(|_| {
        Error::invalid("the host in the URL is neither a DNS name nor an IP address, so no certificate can match it")
    })
}

impl Client {
    /// Reads the files that the URL names. Blocks.
    pub(super) fn new(tls: &Tls, host: &str, wall_us: u64) -> Result<Self> {
        let now = At(UnixTime::since_unix_epoch(Duration::from_micros(wall_us)));
        let builder = ClientConfig::builder_with_details(Arc::new(ring::default_provider()), Arc::new(now))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new(ErrorKind::Unsupported, format!("cannot set up TLS: {error}")))?
            .with_root_certificates(roots(tls)?);
        let mut config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = (chain(identity)?, key(identity)?);
                builder.with_client_auth_cert(chain, key).map_err(|_| {
                    let why =
                        format!("does not match the certificate {:?}, or is no key for TLS", identity.certificate);
                    wrong(KEY, &identity.key, &why)
                })?
            }
        };
        // This configuration ends with its connection, so nobody could resume a session of it.
        config.resumption = Resumption::disabled();
        let shows_itself = if tls.identity.is_some() { Shows::Certificate } else { Shows::Nothing };
        Ok(Self { config: Arc::new(config), server: server(host)?, shows_itself })
    }

    /// Starts a TLS session on a socket. The caller sets a timeout.
    pub(super) async fn handshake(&self, socket: Box<dyn Socket>, at: &str) -> Result<Box<dyn Socket>> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        match connector.connect(self.server.clone(), socket).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(self.told(&error, at).unwrap_or_else(|| hung_up(&error, at))),
        }
    }

    /// Returns what a broken first exchange has to do with TLS, if anything. In TLS 1.3 a server checks our certificate
    /// after our handshake is done, so its refusal arrives as the reply to our first request.
    pub(super) fn explain(&self, error: &redis::RedisError, at: &str) -> Option<Error> {
        if error.kind() != redis::ErrorKind::Io {
            return None;
        }
        let told = self.told(error, at);
        Some(told.unwrap_or_else(|| {
            let advice = match self.shows_itself {
                Shows::Nothing => "if it requires a client certificate, use ?cert=/path.pem&key=/path.pem",
                Shows::Certificate => "it may refuse the client certificate: see the server's log",
            };
            Error::new(
                ErrorKind::Unreachable,
                format!("the Redis at {at} closed the connection after the TLS handshake ({error}): {advice}"),
            )
        }))
    }

    fn told(&self, error: &(dyn StdError + 'static), at: &str) -> Option<Error> {
        use tokio_rustls::rustls::Error as Told;
        let told = cause(error)?;
        let (kind, what) = match told {
            Told::InvalidCertificate(why) => (ErrorKind::Denied, self.distrusted(why)),
            Told::AlertReceived(alert) => self.refused(*alert),
            Told::InvalidMessage(_)
            | Told::InappropriateMessage { .. }
            | Told::InappropriateHandshakeMessage { .. } => {
                (ErrorKind::Unreachable, format!("does not speak TLS ({told}): if this port has no TLS, use redis:"))
            }
            Told::PeerIncompatible(_) => (
                ErrorKind::Unsupported,
                format!("supports no common TLS version or cipher ({told}): it needs TLS 1.2 or 1.3"),
            ),
            other => (ErrorKind::Unreachable, format!("failed the TLS handshake: {other}")),
        };
        Some(Error::new(kind, format!("the server at {at} {what}")))
    }

    /// Returns why we do not trust the server.
    fn distrusted(&self, why: &CertificateError) -> String {
        let advice = match why {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "renew it, or correct the clock of this machine".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "correct the clock of this machine, or of the machine that issued it".to_owned()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                let host = self.server.to_str();
                format!("it is not valid for the host {host:?}: use a host name that it contains, or issue a new one")
            }
            CertificateError::UnknownIssuer => {
                "its issuer is not trusted: add the issuer with ?ca=/path.pem".to_owned()
            }
            _ => "issue one with the authority of ?ca=/path.pem; a self-signed certificate is no authority".to_owned(),
        };
        format!("has a certificate that is not accepted: {advice} ({why})")
    }

    /// Returns why the server does not trust us.
    fn refused(&self, alert: AlertDescription) -> (ErrorKind, String) {
        use AlertDescription as Alert;
        let advice = match (alert, self.shows_itself) {
            (Alert::HandshakeFailure | Alert::ProtocolVersion | Alert::InsufficientSecurity, Shows::Certificate) => {
                return (
                    ErrorKind::Unsupported,
                    format!("supports no common TLS version or cipher ({alert:?}): it needs TLS 1.2 or 1.3"),
                );
            }
            // In TLS 1.2 this is also the alert of a server that requires a certificate.
            (Alert::HandshakeFailure | Alert::CertificateRequired, Shows::Nothing) => {
                "it requires a client certificate: use ?cert=/path.pem&key=/path.pem"
            }
            (Alert::UnknownCA, Shows::Certificate) => "it does not trust the issuer of the client certificate",
            (Alert::CertificateExpired, Shows::Certificate) => "the client certificate has expired: renew the file",
            (
                Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateUnknown
                | Alert::CertificateRequired
                | Alert::AccessDenied
                | Alert::DecryptError,
                _,
            ) => "it refuses the client certificate of ?cert=: see the server's log",
            _ => {
                return (
                    ErrorKind::Unreachable,
                    format!("refused the TLS handshake ({alert:?}): see the server's log"),
                );
            }
        };
        (ErrorKind::Denied, format!("refused the TLS handshake: {advice} ({alert:?})"))
    }
}

/// The connection was closed during the handshake, without an alert.
fn hung_up(error: &io::Error, at: &str) -> Error {
    let message = format!(
        "the server at {at} closed the connection in the TLS handshake ({error}): if this port has no TLS, use redis:"
    );
    Error::new(ErrorKind::Unreachable, message)
}

/// Returns the error of rustls that caused an error of the socket, if there is one.
fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a tokio_rustls::rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(told) = error.downcast_ref() {
            return Some(told);
        }
        // The source of an I/O error is the source of its cause, not its cause. The same is true for a shared error.
        let shared = error.downcast_ref::<Arc<dyn StdError + Send + Sync>>().map(|inner| &**inner);
        let inner = shared.or_else(|| error.downcast_ref::<io::Error>()?.get_ref());
        next = match inner {
            Some(inner) => Some(inner as &'a (dyn StdError + 'static)),
            None => error.source(),
        };
    }
    None
}

fn roots(tls: &Tls) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let Some(path) = &tls.ca else {
        let system = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(system.certs);
        return match roots.is_empty() {
            true => Err(Error::invalid("this system has no trusted certificates: use ?ca=/path.pem")),
            false => Ok(roots),
        };
    };
    for certificate in certificates(CA, path)? {
        let added = roots.add(certificate);
        added.map_err(|_| wrong(CA, path, "contains an invalid certificate"))?;
    }
    Ok(roots)
}

fn chain(identity: &Identity) -> Result<Vec<CertificateDer<'static>>> {
    certificates(CERTIFICATE, &identity.certificate)
}

fn certificates(kind: FileKind, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = content(kind, path, PEM_MAX)?;
    // The error of the parser would repeat a line of the file.
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match read {
        Ok(certificates) if certificates.is_empty() => Err(wrong(kind, path, "has no certificate in PEM in it")),
        Ok(certificates) => Ok(certificates),
        Err(_) => Err(wrong(kind, path, "is not PEM")),
    }
}

fn key(identity: &Identity) -> Result<PrivateKeyDer<'static>> {
    let path = &identity.key;
    let bytes = content(KEY, path, PEM_MAX)?;
    let wrong = |why| wrong(KEY, path, why);
    match PrivateKeyDer::pem_slice_iter(&bytes).next() {
        Some(Ok(key)) => Ok(key),
        None => Err(wrong("has no private key in PEM in it; one that is encrypted is of no use here")),
        Some(Err(_)) => Err(wrong("is not PEM")),
    }
}
