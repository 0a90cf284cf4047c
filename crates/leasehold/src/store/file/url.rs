//! The part of a URL after `file:`.

use std::path::PathBuf;

use crate::error::Error;

/// SQLite opens no file whose path is longer than 512 bytes, with the name of the database.
const PATH_MAX: usize = 400;

/// Returns the directory that a URL names. No I/O.
///
/// Refuses characters that can be read in two ways (`%20`, `?`, `#`), because two programs that read them differently would
/// not exclude each other.
pub(super) fn directory(rest: &str) -> Result<PathBuf, Error> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return Err(Error::invalid("file: takes no host, because it is a directory of this host: use file:/PATH"));
        }
    };
    if !path.starts_with('/') {
        // Two processes in two folders would have two stores, but expect one.
        return Err(Error::invalid("file: needs an absolute path, for example file:/var/lib/app/locks"));
    }
    if path.contains(['?', '#', '%']) {
        return Err(Error::invalid("file: takes no options, and the path cannot contain '?', '#' or '%'"));
    }
    if path.len() > PATH_MAX || path.contains('\0') {
        return Err(Error::invalid(format!("file: takes a path of at most {PATH_MAX} bytes without a zero byte")));
    }
    Ok(PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn an_absolute_path_has_two_spellings() {
        for rest in ["/var/lib/app", "///var/lib/app"] {
            assert_eq!(directory(rest).unwrap(), PathBuf::from("/var/lib/app"));
        }
        assert_eq!(directory("/with a space/ä").unwrap(), PathBuf::from("/with a space/ä"));
    }

    #[test]
    fn ambiguous_paths_are_refused() {
        let long = format!("/{}", "x".repeat(PATH_MAX));
        for (rest, says) in [
            ("", "absolute"),
            ("locks", "absolute"),
            ("./locks", "absolute"),
            ("//host/locks", "takes no host"),
            ("//", "takes no host"),
            ("/locks?mode=ro", "takes no options"),
            ("/locks#1", "takes no options"),
            ("/my%20locks", "cannot contain"),
            ("/lo\0cks", "without a zero byte"),
            (&long, "at most 400 bytes"),
        ] {
            let error = directory(rest).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{rest}");
            assert!(error.to_string().contains(says), "{rest}: {error}");
        }
    }
}
