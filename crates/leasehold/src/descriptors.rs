//! File descriptors: a process, and the whole system, may have only a limited number of files and sockets open. If none
//! is left, the error says which limit to raise.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use tokio::runtime::{Builder, Runtime};

/// The number of descriptors of the first runtime of a process: three for its driver, a pair of sockets for signals,
/// and a copy of one of them.
const RUNTIME: usize = 6;

/// Returns what to do if the error of the system says that no descriptor is left, and `None` for every other error.
pub fn advice(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE => Some(PROCESS),
        Errno::NFILE => Some("this system has too many files open: raise its limit (sysctl fs.file-max)"),
        _ => None,
    }
}

/// Returns what to do if only a few descriptors are left. This is for errors that hide their cause: a library that
/// opened some, failed and closed them again leaves a few.
#[cfg(feature = "file")]
pub(crate) fn advice_if_few() -> Option<&'static str> {
    advice(&spare(FEW).err()?)
}

/// Replaces the error of a name look-up if no descriptor is left, because the look-up may hide that cause.
pub(crate) fn uncovered(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => error,
        None => spare(FEW).err().unwrap_or(error),
    }
}

/// The number of descriptors that a library opens at a time.
const FEW: usize = 8;

const PROCESS: &str = "this process has too many files open: raise its limit (ulimit -n)";

/// Returns an error if fewer than `count` descriptors are left. It opens this many, and closes them.
fn spare(count: usize) -> io::Result<()> {
    let pairs: io::Result<Vec<_>> = (0..count.div_ceil(2)).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

/// Returns a runtime with one thread.
///
/// tokio panics if it finds no descriptor for the signals of the process, which it sets up with the first runtime. So
/// this function checks first whether there are enough. Another thread can take some between the check and the creation
/// of the runtime, which cannot be prevented here.
pub fn runtime() -> io::Result<Runtime> {
    spare(RUNTIME)?;
    Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_only_for_descriptors() {
        assert!(advice(&Errno::MFILE.into()).is_some_and(|advice| advice.contains("ulimit -n")));
        assert!(advice(&Errno::NFILE.into()).is_some_and(|advice| advice.contains("fs.file-max")));
        for other in [io::Error::from(Errno::NOENT), io::ErrorKind::ConnectionRefused.into()] {
            assert_eq!(advice(&other), None, "{other}");
        }
        let failed = uncovered(io::Error::other("failed to lookup address information"));
        assert_eq!(advice(&failed), None, "a test process has enough: {failed}");
    }
}
