//! `leasehold inspect`: shows the holder of a lock.

use crate::args::Inspect;
use crate::exit::{Exit, Failure};
use crate::show::{self, Lock};
use crate::store;

pub(crate) fn run(args: &Inspect) -> Result<Exit, Failure> {
    let inspection =
        crate::block_on(async { Ok(store::connect(&args.store).await?.mutex(&args.name).inspect().await?) })?;
    let lines = match args.form.json {
        true => vec![show::json(&Lock::new(&args.name, &inspection))?],
        false => [vec![show::sentence(&args.name, &inspection)], show::nodes(&inspection)].concat(),
    };
    show::print(&lines)?;
    Ok(show::exit(&inspection))
}
