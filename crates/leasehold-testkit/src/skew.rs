//! A server's own wall clock: the shim of `skew/skewclock.c`, compiled where it is needed, and the file that it heeds.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const SOURCE: &str = include_str!("../skew/skewclock.c");

/// The clock of one server. The file is written in place: the shim has mapped this very inode.
#[derive(Debug)]
pub(crate) struct SkewClock {
    shim: PathBuf,
    path: PathBuf,
    file: File,
}

impl SkewClock {
    /// Puts the shim and its file, at no skew, into `dir`.
    pub(crate) fn new(dir: &Path) -> Self {
        let (shim, path) = (dir.join("skewclock.so"), dir.join("skew"));
        fs::write(&shim, compiled()).expect("a fresh temporary directory can be written");
        fs::write(&path, 0i64.to_ne_bytes()).expect("a fresh temporary directory can be written");
        let file = File::options().read(true).write(true).open(&path).expect("the file was just written");
        Self { shim, path, file }
    }

    /// What the environment of the server must say.
    pub(crate) fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", self.shim.clone().into()), ("SKEW_FILE", self.path.clone().into())]
    }

    /// How far the server's clock is ahead of the machine's.
    pub(crate) fn skew_us(&self) -> i64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, 0).expect("the skew file has eight bytes");
        i64::from_ne_bytes(bytes)
    }

    /// Sets how far the server's clock is ahead of the machine's.
    pub(crate) fn set_skew_us(&self, skew_us: i64) {
        self.file.write_all_at(&skew_us.to_ne_bytes(), 0).expect("the skew file has eight bytes");
    }
}

/// The shim's bytes, compiled once in this process. They are kept in memory, not in a file with a name that another user
/// of the machine could have taken before.
fn compiled() -> &'static [u8] {
    static SHIM: OnceLock<Vec<u8>> = OnceLock::new();
    SHIM.get_or_init(compile)
}

fn compile() -> Vec<u8> {
    let dir = tempfile::Builder::new().prefix("leasehold-skewclock-").tempdir().expect("a temporary directory");
    let (source, shim) = (dir.path().join("skewclock.c"), dir.path().join("skewclock.so"));
    fs::write(&source, SOURCE).expect("a fresh temporary directory can be written");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-shared", "-fPIC", "-O2", "-o"])
        .args([&shim, &source])
        .output()
        .unwrap_or_else(|e| {
            panic!(
                "no C compiler ({}: {e}): the clock shim needs one. Install it (Debian: apt-get install gcc libc6-dev) \
                 or name it in CC",
                compiler.display()
            )
        });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} could not compile skewclock.c:\n{errors}", compiler.display());
    fs::read(&shim).expect("the compiler succeeded")
}
