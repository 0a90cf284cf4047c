//! The temporary directories of this process.
//!
//! They are in one directory, which a shell removes when this process ends, however that happens.

use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

/// Makes a directory in `$0`, writes its name, waits for the end of the input, and removes the directory. A terminal sends
/// its signals to the shell too, which must outlive this process.
const KEEPER: &str = r#"trap '' HUP INT QUIT TERM; dir=$(mktemp -d "$0/leasehold-hazards-XXXXXX") || exit
echo "$dir"; read -r _; rm -rf "$dir""#;

#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// The keeper waits for the end of this, which is the end of this process.
    _input: ChildStdin,
    _keeper: Child,
}

/// Makes a temporary directory.
pub(super) fn dir() -> io::Result<TempDir> {
    static ROOT: OnceLock<Result<Root, String>> = OnceLock::new();
    match ROOT.get_or_init(|| root().map_err(|error| error.to_string())) {
        Ok(root) => tempfile::tempdir_in(&root.path),
        Err(why) => Err(io::Error::other(why.clone())),
    }
}

fn root() -> io::Result<Root> {
    let parent = std::env::temp_dir();
    let mut command = Command::new("sh");
    command.args(["-c", KEEPER]).arg(&parent).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut keeper = command.spawn().map_err(|error| no_shell(&error))?;
    let input = keeper.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let output = keeper.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    match line.trim_end() {
        "" => {
            let parent = parent.display();
            Err(io::Error::other(format!(
                "cannot make a directory in {parent}; set TMPDIR to one that you can write to"
            )))
        }
        path => Ok(Root { path: path.into(), _input: input, _keeper: keeper }),
    }
}

/// Says that there is no shell.
pub(super) fn no_shell(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot run sh: {error}"))
}
