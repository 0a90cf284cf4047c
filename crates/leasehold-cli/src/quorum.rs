//! `leasehold quorum`.

use crate::exit::{Exit, Failure};
use crate::said::{OfQuorum, Quorum};
use crate::show;
use crate::store::Location;

pub(crate) fn run(said: &Quorum) -> Result<Exit, Failure> {
    let location = Location::of(&said.store)?;
    if !location.is_quorum() {
        return Err(Failure::usage(
            "this is for a quorum: give --store 'quorum:?node=redis://A&node=redis://B&node=redis://C', in quotes",
        ));
    }
    match said.what {
        OfQuorum::Begin => {
            crate::block_on(async { Ok(leasehold::quorum::begin(&location.url).await?) })?;
            show::print(&["begun: the nodes vote from now on".to_owned()])
        }
    }
}
