//! A preloaded library that moves the wall clock of one process: see `shims/skewclock.c`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use super::scratch;

/// The source of the shim, in C.
pub const SKEW_CLOCK: &str = include_str!("../../shims/skewclock.c");

/// The clock of one server.
#[derive(Debug)]
pub(super) struct SkewClock {
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl SkewClock {
    /// Writes the library and the file with the skew into `dir`.
    pub(super) fn new(dir: &Path) -> io::Result<Self> {
        let (library, path) = (dir.join("skewclock.so"), dir.join("skew"));
        fs::write(&library, compiled()?)?;
        fs::write(&path, 0i64.to_ne_bytes())?;
        let file = File::options().read(true).write(true).open(&path)?;
        Ok(Self { library, path, file })
    }

    /// Makes a process that is about to be started load the library.
    pub(super) fn preload(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("SKEW_FILE", &self.path);
    }

    /// Moves the clock forward.
    pub(super) fn advance(&self, by: Duration) -> io::Result<()> {
        self.turn(i64::try_from(by.as_micros()).map_err(io::Error::other)?)
    }

    /// Moves the clock back.
    pub(super) fn set_back(&self, by: Duration) -> io::Result<()> {
        self.turn(-i64::try_from(by.as_micros()).map_err(io::Error::other)?)
    }

    fn turn(&self, by_us: i64) -> io::Result<()> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0)?;
        self.file.write_all_at(&(i64::from_ne_bytes(bytes) + by_us).to_ne_bytes(), 0)
    }
}

/// Checks that the library can be compiled.
pub(super) fn check() -> io::Result<()> {
    compiled().map(drop)
}

/// Returns the library, compiled once in this process.
fn compiled() -> io::Result<&'static [u8]> {
    static COMPILED: OnceLock<Result<Vec<u8>, String>> = OnceLock::new();
    match COMPILED.get_or_init(|| compile().map_err(|error| error.to_string())) {
        Ok(bytes) => Ok(bytes),
        Err(why) => Err(io::Error::other(why.clone())),
    }
}

fn compile() -> io::Result<Vec<u8>> {
    let dir = scratch::dir()?;
    let (source, library) = (dir.path().join("skewclock.c"), dir.path().join("skewclock.so"));
    fs::write(&source, SKEW_CLOCK)?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler).args(["-shared", "-fPIC", "-O2", "-o"]).args([&library, &source]).output();
    let output = output.map_err(|error| {
        io::Error::other(format!("cannot run the C compiler {}: {error}; install one or set CC", compiler.display()))
    })?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let (compiler, status) = (compiler.display(), output.status);
        return Err(io::Error::other(format!(
            "the C compiler {compiler} cannot compile skewclock.c: {status} {errors}"
        )));
    }
    fs::read(&library)
}
