//! Completions and manual pages. They are generated from `args.rs`, so that they always match the command line.

use std::io;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Command, CommandFactory as _, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::args::Arguments;
use crate::exit::{Exit, Failure};
use crate::show;

pub(crate) fn completions(shell: Shell) -> Result<Exit, Failure> {
    let mut page = Vec::new();
    // clap wants names that live forever. The leak is harmless: the program ends with this page.
    let names: Vec<&'static str> = verbs().map(|verb| &*verb.get_name().to_owned().leak()).collect();
    let hinted = |verb: Command| match verb.get_name() {
        // The script of zsh has one list of any length at most: that of the command.
        "run" => verb
            .mut_arg("names", |names| names.num_args(1).action(ArgAction::Set))
            .mut_arg("command", |command| command.value_hint(ValueHint::CommandWithArguments)),
        "elect" => verb.mut_arg("command", |command| command.value_hint(ValueHint::CommandWithArguments)),
        "man" => verb.mut_arg("verb", |verb| verb.value_parser(PossibleValuesParser::new(&names))),
        _ => verb,
    };
    let mut whole = with(verbs().map(hinted));
    clap_complete::generate(shell, &mut whole, "leasehold", &mut page);
    show::write(&page)
}

pub(crate) fn man(verb: Option<&str>) -> Result<Exit, Failure> {
    let mut whole = with(verbs()).disable_help_subcommand(true);
    whole.build();
    let command = match verb {
        None => whole,
        Some(verb) => {
            let found = named(&whole, verb);
            found.cloned().ok_or_else(|| Failure::usage(format!("unknown verb {verb:?}: see leasehold --help")))?
        }
    };
    let page = page(command).map_err(|error| Failure::own(format!("cannot make the manual page: {error}")))?;
    show::write(&page)
}

/// Returns the verb with this name. The verb of a verb has a name such as `lab-show`, like its manual page.
fn named<'a>(command: &'a Command, name: &str) -> Option<&'a Command> {
    command.get_subcommands().find_map(|verb| match name.strip_prefix(verb.get_name())? {
        "" => Some(verb),
        rest => named(verb, rest.strip_prefix('-')?),
    })
}

/// Returns the verbs without the internal ones. (The generators of clap would include hidden verbs.)
fn verbs() -> impl Iterator<Item = Command> {
    let verbs: Vec<_> = Arguments::command().get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    verbs.into_iter()
}

/// Returns the whole command with these verbs.
fn with(verbs: impl Iterator<Item = Command>) -> Command {
    let whole = Arguments::command();
    Command::new("leasehold")
        .version(env!("CARGO_PKG_VERSION"))
        .about(whole.get_about().cloned().unwrap_or_default())
        .after_help(whole.get_after_help().cloned().unwrap_or_default())
        .subcommand_required(true)
        .subcommand_value_name("VERB")
        .subcommands(verbs)
}

fn page(mut command: Command) -> io::Result<Vec<u8>> {
    // The usage line of the help page, with values and `--`.
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let notes = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let has_verbs = command.has_subcommands();
    let man = Man::new(command).source(concat!("leasehold ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_verbs {
        man.render_subcommands_section(&mut page)?;
    }
    sections(&notes.unwrap_or_default()).to_writer(&mut page)?;
    Ok(page)
}

/// Converts the notes below the options of a help page. Paragraphs with a known title become sections.
fn sections(notes: &str) -> Roff {
    let paragraphs: Vec<_> = notes.split("\n\n").filter(|text| !text.is_empty()).map(section).collect();
    let mut page = Roff::new();
    // Manual pages have this order.
    for title in ["EXIT STATUS", "NOTES", "EXAMPLES"] {
        let texts = paragraphs.iter().filter(|(of, _)| *of == title);
        for (place, (_, text)) in texts.enumerate() {
            match place {
                0 => page.control("SH", [title]),
                _ => page.control("PP", []),
            };
            fill(&mut page, text);
        }
    }
    page
}

/// Returns the section of a paragraph, and the text below its title.
fn section(paragraph: &str) -> (&'static str, &str) {
    if let Some(examples) = paragraph.strip_prefix("Examples:") {
        return ("EXAMPLES", examples);
    }
    match paragraph.strip_prefix("Exit status") {
        Some(status) => ("EXIT STATUS", status.trim_start_matches([':', ' '])),
        None => ("NOTES", paragraph),
    }
}

/// Adds text. Lines that begin with a blank are a list or an example and are kept; the lines between them are filled.
fn fill(page: &mut Roff, text: &str) {
    let mut is_kept = false;
    for line in text.lines().filter(|line| !line.is_empty()) {
        if line.starts_with(' ') != is_kept {
            is_kept = !is_kept;
            page.control(if is_kept { "nf" } else { "fi" }, []);
        }
        page.text([roman(line)]);
    }
    if is_kept {
        page.control("fi", []);
    }
}
