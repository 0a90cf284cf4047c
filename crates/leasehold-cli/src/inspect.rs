//! `leasehold inspect`: shows the holders of a lock, and who waits.

use crate::args::Inspect;
use crate::exit::{Exit, Failure};
use crate::json::Lock;
use crate::show;
use crate::store;

pub(crate) fn run(args: &Inspect) -> Result<Exit, Failure> {
    let inspection =
        crate::block_on(async { Ok(store::connect(&args.store).await?.mutex(&args.name).inspect().await?) })?;
    let lines = match args.form.json {
        true => vec![show::json(&Lock::new(&args.name, &inspection))?],
        false => show::lines(&args.name, &inspection),
    };
    show::print(&lines)?;
    Ok(show::exit(&inspection))
}
