//! `leasehold inspect`.

use crate::exit::{Exit, Failure};
use crate::said::Inspect;
use crate::show::{self, Lock};
use crate::store;

pub(crate) fn run(said: &Inspect) -> Result<Exit, Failure> {
    let inspection =
        crate::block_on(async { Ok(store::connect(&said.store).await?.mutex(&said.name).inspect().await?) })?;
    let line = match said.form.json {
        true => show::json(&Lock::new(&said.name, &inspection))?,
        false => show::sentence(&said.name, &inspection),
    };
    show::print(&[line])
}
