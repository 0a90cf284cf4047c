//! `leasehold quorum`: initializes a new quorum.

use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

use crate::args::{OfQuorum, Quorum};
use crate::exit::{Exit, Failure};
use crate::show;
use crate::store::Location;

/// After this time the command reports that it is still checking the nodes.
const REPORT_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Quorum) -> Result<Exit, Failure> {
    let location = Location::of(&args.store)?;
    if !location.is_quorum() {
        return Err(Failure::usage(
            "the store is not a quorum: use --store 'quorum:?node=redis://A&node=redis://B&node=redis://C', in quotes",
        ));
    }
    match args.what {
        OfQuorum::Begin => {
            crate::block_on(begin(args, &location.url))?;
            show::print(&["initialized: the nodes vote from now on".to_owned()])
        }
    }
}

async fn begin(args: &Quorum, url: &str) -> Result<(), Failure> {
    if args.force {
        return Ok(leasehold::quorum::force_begin(url).await?);
    }
    let mut beginning = pin!(leasehold::quorum::begin(url));
    let begun = tokio::select! {
        biased;
        begun = &mut beginning => begun,
        () = sleep(REPORT_AFTER) => {
            if !args.store.quiet {
                show::warn("checking all nodes for holders and waiters, for at most 60 s");
            }
            beginning.await
        }
    };
    Ok(begun?)
}
