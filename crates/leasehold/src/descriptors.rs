//! Descriptors: a process may have only so many files and sockets open, and the whole system as well. Where there is none
//! left, an error says which limit to raise.

use std::io;
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use tokio::runtime::{Builder, Runtime};

/// What the first runtime of a process takes: three for its driver, a pair of sockets for signals, and a copy of one of
/// them.
const RUNTIME: usize = 6;

/// What to do about an error of the system that there is no descriptor left; `None` for every other error.
pub fn advice(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE => Some(PROCESS),
        Errno::NFILE => Some("this system has too many files open: raise its limit (sysctl fs.file-max)"),
        _ => None,
    }
}

/// What to do if only few descriptors are left. For errors that hide their cause: a library that opened some, failed and
/// closed them again leaves a few.
#[cfg(feature = "file")]
pub(crate) fn advice_if_few() -> Option<&'static str> {
    advice(&spare(FEW).err()?)
}

/// The error of a look-up, which may hide that it found no descriptor: then that error instead.
pub(crate) fn uncovered(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(_) => error,
        None => spare(FEW).err().unwrap_or(error),
    }
}

/// As many as a library opens at a time.
const FEW: usize = 8;

const PROCESS: &str = "this process has too many files open: raise its limit (ulimit -n)";

/// Whether so many descriptors are left. Opens as many, and closes them.
fn spare(count: usize) -> io::Result<()> {
    let pairs: io::Result<Vec<_>> = (0..count.div_ceil(2)).map(|_| UnixStream::pair()).collect();
    pairs.map(drop)
}

/// A runtime of one thread.
///
/// tokio panics if it finds no descriptor for the signals of the process, which it sets up with the first runtime. So this
/// looks first whether there are enough. Between the look and the runtime another thread can take some; nothing can be done
/// about that here.
pub fn runtime() -> io::Result<Runtime> {
    spare(RUNTIME)?;
    Builder::new_current_thread().enable_all().build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_descriptors_are_spoken_of() {
        assert!(advice(&Errno::MFILE.into()).is_some_and(|advice| advice.contains("ulimit -n")));
        assert!(advice(&Errno::NFILE.into()).is_some_and(|advice| advice.contains("fs.file-max")));
        for other in [io::Error::from(Errno::NOENT), io::ErrorKind::ConnectionRefused.into()] {
            assert_eq!(advice(&other), None, "{other}");
        }
        let failed = uncovered(io::Error::other("failed to lookup address information"));
        assert_eq!(advice(&failed), None, "a test has enough: {failed}");
    }
}
