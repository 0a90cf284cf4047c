//! Completions and manual pages: made from what `said.rs` says, so that they cannot tell of something else.

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::exit::{Exit, Failure};
use crate::said::Said;
use crate::show;

pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut page = Vec::new();
    clap_complete::generate(shell, &mut Said::command(), "leasehold", &mut page);
    show::write(&page)
}

pub(crate) fn man(verb: Option<&str>) -> Result<Exit, Failure> {
    let mut whole = Said::command();
    whole.build();
    let command = match verb {
        None => whole,
        Some(verb) => {
            let found = whole.get_subcommands().find(|command| command.get_name() == verb && !command.is_hide_set());
            found.cloned().ok_or_else(|| Failure::usage(format!("there is no verb {verb:?}: see leasehold --help")))?
        }
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| Failure::own(format!("no page could be made: {error}")))?;
    let page = String::from_utf8_lossy(&page).replace(".SH EXTRA\n", NOTES);
    show::write(page.as_bytes())
}

/// What stands below the options on a help page are lists and examples: lines, and not paragraphs to be filled.
const NOTES: &str = ".SH NOTES\n.nf\n";
