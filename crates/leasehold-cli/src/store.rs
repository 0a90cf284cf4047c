//! Which store.

use std::env;

use leasehold::Leasehold;

use crate::exit::Failure;
use crate::said::Place;

const VARIABLE: &str = "LEASEHOLD_STORE";

/// Connects to the store that was said.
pub(crate) async fn connect(place: &Place) -> Result<Leasehold, Failure> {
    Ok(Leasehold::connect(&which(place)?).await?)
}

/// Its URL. An error does not repeat it: it may have a password in it.
fn which(place: &Place) -> Result<String, Failure> {
    if place.store.as_ref().is_some_and(|url| url.contains('@')) {
        return Err(Failure::usage(format!(
            "a URL with a user or password is not taken from the command line, where everybody on this machine can \
             read it: put it into the environment variable {VARIABLE}"
        )));
    }
    let set = || env::var(VARIABLE).ok().filter(|url| !url.is_empty());
    let url = place.store.clone().or_else(set);
    let url = url.ok_or_else(|| Failure::usage(format!("which store? Give --store URL, or set {VARIABLE}")))?;
    match url.get(.."memory:".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("memory:")) {
        // Here every lock is free, whoever holds it there.
        true => Err(Failure::usage(
            "memory: is inside of each program, and cannot be looked at from another: give a redis://HOST",
        )),
        false => Ok(url),
    }
}
