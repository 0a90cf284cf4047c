//! `leasehold inspect`: shows the holder of a lock.

use crate::exit::{Exit, Failure};
use crate::said::Inspect;
use crate::show::{self, Lock};
use crate::store;

pub(crate) fn run(said: &Inspect) -> Result<Exit, Failure> {
    let inspection =
        crate::block_on(async { Ok(store::connect(&said.store).await?.mutex(&said.name).inspect().await?) })?;
    let lines = match said.form.json {
        true => vec![show::json(&Lock::new(&said.name, &inspection))?],
        false => [vec![show::sentence(&said.name, &inspection)], show::nodes(&inspection)].concat(),
    };
    show::print(&lines)?;
    Ok(show::exit(&inspection))
}
