//! The command line options of `leasehold-lab models`.

pub(crate) const USAGE: &str = "leasehold-lab models [--deep] [-v | --markdown] [--rule P6] [--scene ghosts]";

/// The models to run, and the form of the output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Only this rule's flaws, and no run with all rules on.
    pub(crate) rule: Option<String>,
    /// Only this scene.
    pub(crate) scene: Option<String>,
    pub(crate) size: Size,
    pub(crate) form: Form,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Size {
    #[default]
    Usual,
    Deep,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    #[default]
    Lines,
    /// With each schedule.
    Schedules,
    /// Tables for a document: without times, which differ from run to run.
    Markdown,
}

impl Options {
    /// Parses the options. Returns `None` if they are invalid.
    pub(crate) fn of(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self::default();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--deep" => options.size = Size::Deep,
                "-v" => options.form = Form::Schedules,
                "--markdown" => options.form = Form::Markdown,
                "--rule" => options.rule = Some(args.next()?),
                "--scene" => options.scene = Some(args.next()?),
                _ => return None,
            }
        }
        Some(options)
    }
}
