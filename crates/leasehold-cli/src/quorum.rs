//! `leasehold quorum`.

use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

use crate::exit::{Exit, Failure};
use crate::said::{OfQuorum, Quorum};
use crate::show;
use crate::store::Location;

/// After this time the command says that it is still asking.
const TOLD_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn run(said: &Quorum) -> Result<Exit, Failure> {
    let location = Location::of(&said.store)?;
    if !location.is_quorum() {
        return Err(Failure::usage(
            "the store is not a quorum: use --store 'quorum:?node=redis://A&node=redis://B&node=redis://C', in quotes",
        ));
    }
    match said.what {
        OfQuorum::Begin => {
            crate::block_on(begin(said, &location.url))?;
            show::print(&["begun: the nodes vote from now on".to_owned()])
        }
    }
}

async fn begin(said: &Quorum, url: &str) -> Result<(), Failure> {
    if said.force {
        return Ok(leasehold::quorum::force_begin(url).await?);
    }
    let mut beginning = pin!(leasehold::quorum::begin(url));
    let begun = tokio::select! {
        biased;
        begun = &mut beginning => begun,
        () = sleep(TOLD_AFTER) => {
            if !said.store.quiet {
                show::warn("asking all nodes whether anybody holds or waits, for at most 60 s");
            }
            beginning.await
        }
    };
    Ok(begun?)
}
