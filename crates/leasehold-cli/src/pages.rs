//! Completions and manual pages: made from what `said.rs` says, so that they cannot tell of something else.

use std::io::{self, Write as _};

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::exit::{Exit, Failure};
use crate::said::Said;

pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut page = Vec::new();
    clap_complete::generate(shell, &mut Said::command(), "leasehold", &mut page);
    write(&page)
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
    Man::new(command).render(&mut page).and_then(|()| io::stdout().flush()).map_err(|error| unwritten(&error))?;
    write(&page)
}

fn write(page: &[u8]) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(page).and_then(|()| out.flush()).map(|()| Exit::Done).map_err(|error| unwritten(&error))
}

fn unwritten(error: &io::Error) -> Failure {
    Failure::own(format!("the page could not be written: {error}"))
}
