//! Replaces `tls.rs` in a program without TLS: every use is an error that names the feature.

use super::named::Tls;
use crate::error::{Error, ErrorKind, Result};
use crate::world::Socket;

pub(super) enum Client {}

/// Refuses before any I/O.
pub(super) fn check(_host: &str) -> Result<()> {
    let message = "this program was built without Leasehold's feature `tls`: turn it on in Cargo.toml, or use redis:";
    Err(Error::new(ErrorKind::Unsupported, message))
}

impl Client {
    pub(super) fn new(_: &Tls, host: &str, _: u64) -> Result<Self> {
        Err(check(host).expect_err("refused"))
    }

    pub(super) async fn handshake(&self, _: Box<dyn Socket>, _: &str) -> Result<Box<dyn Socket>> {
        match *self {}
    }

    pub(super) fn explain(&self, _: &redis::RedisError, _: &str) -> Option<Error> {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_the_feature() {
        let error = check("redis.example").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("feature `tls`") && error.to_string().contains("Cargo.toml"), "{error}");
    }
}
