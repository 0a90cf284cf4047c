//! Preloaded libraries that change one system call of one process. They are compiled when needed, and each reads a number
//! from a file.
//!
//! - `skewclock.c`, of the hazards, moves a server's wall clock: see [`Builder::skew`](crate::server::Builder::skew).
//! - `shims/slowfsync.c` makes its disk slow: see [`Builder::slow_fsync`](crate::server::Builder::slow_fsync).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The kind of shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    SkewClock,
    SlowFsync,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::SkewClock => "skewclock",
            Self::SlowFsync => "slowfsync",
        }
    }

    fn source(self) -> &'static str {
        match self {
            Self::SkewClock => leasehold_hazards::live::SKEW_CLOCK,
            Self::SlowFsync => include_str!("../shims/slowfsync.c"),
        }
    }

    /// Returns the environment variable that names the file.
    fn variable(self) -> &'static str {
        match self {
            Self::SkewClock => "SKEW_FILE",
            Self::SlowFsync => "SLOW_FSYNC_FILE",
        }
    }

    /// Returns the shim's bytes, compiled once in this process. They are kept in memory, not in a file with a name that
    /// another user of the machine could have taken before.
    fn compiled(self) -> &'static [u8] {
        static SHIMS: [OnceLock<Vec<u8>>; 2] = [OnceLock::new(), OnceLock::new()];
        SHIMS[self as usize].get_or_init(|| compile(self))
    }
}

/// The shim of one server. The file is written in place, because the shim has mapped this very inode.
#[derive(Debug)]
pub(crate) struct Shim {
    kind: Kind,
    library: PathBuf,
    path: PathBuf,
    file: File,
}

impl Shim {
    /// Writes the shim and its file, with the number zero, into `dir`.
    pub(crate) fn new(kind: Kind, dir: &Path) -> Self {
        let (library, path) = (dir.join(kind.name()).with_extension("so"), dir.join(kind.name()));
        fs::write(&library, kind.compiled()).expect("a fresh temporary directory can be written");
        fs::write(&path, 0i64.to_ne_bytes()).expect("a fresh temporary directory can be written");
        let file = File::options().read(true).write(true).open(&path).expect("the file was just written");
        Self { kind, library, path, file }
    }

    /// Makes a process that is about to be started load these shims.
    pub(crate) fn preload<'a>(shims: impl IntoIterator<Item = &'a Self>, command: &mut Command) {
        let mut libraries = std::ffi::OsString::new();
        for shim in shims {
            if !libraries.is_empty() {
                libraries.push(":");
            }
            libraries.push(&shim.library);
            command.env(shim.kind.variable(), &shim.path);
        }
        if !libraries.is_empty() {
            command.env("LD_PRELOAD", libraries);
        }
    }

    /// Returns the number of microseconds in the file.
    pub(crate) fn micros(&self) -> i64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).expect("the shim's file has eight bytes");
        i64::from_ne_bytes(bytes)
    }

    /// Sets the number of microseconds.
    pub(crate) fn set_micros(&self, micros: i64) {
        self.file.write_all_at(&micros.to_ne_bytes(), 0).expect("the shim's file has eight bytes");
    }
}

fn compile(kind: Kind) -> Vec<u8> {
    let name = kind.name();
    let dir = tempfile::Builder::new().prefix(&format!("leasehold-{name}-")).tempdir().expect("a temporary directory");
    let (source, shim) = (dir.path().join("shim.c"), dir.path().join("shim.so"));
    fs::write(&source, kind.source()).expect("a fresh temporary directory can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output =
        Command::new(&compiler).args(["-shared", "-fPIC", "-O2", "-o"]).args([&shim, &source]).output().unwrap_or_else(
            |e| {
                panic!(
                    "no C compiler ({}: {e}): the shim {name} needs one. Install it (Debian: apt-get install gcc \
                 libc6-dev) or name it in CC",
                    compiler.display()
                )
            },
        );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} could not compile {name}.c:\n{errors}", compiler.display());
    fs::read(&shim).expect("the compiler succeeded")
}
