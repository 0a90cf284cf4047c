//! The repository's files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rust,
    /// Another language: Lua, C, the shell's, TOML.
    Code,
    /// A page for people.
    Page,
}

#[derive(Debug)]
pub(crate) struct File {
    /// Its path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) kind: Kind,
    pub(crate) text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether a page may link to it: a file, a directory that has files, or a picture.
pub(crate) fn exists(paths: &BTreeSet<String>, path: &str) -> bool {
    let folder = format!("{}/", path.trim_end_matches('/'));
    let is_picture = || (path.ends_with(".svg") || path.ends_with(".png")) && root().join(path).is_file();
    paths.contains(path) || paths.iter().any(|file| file.starts_with(&folder)) || is_picture()
}

/// Returns every file that was written by hand.
pub(crate) fn files() -> Vec<File> {
    let mut files = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root().join(&folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
        for entry in entries {
            let entry = entry.expect("an entry of a folder that can be read");
            let name = entry.file_name().to_str().expect("our names are UTF-8").to_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let is_folder = entry.file_type().expect("an entry has a type").is_dir();
            // Hidden folders belong to version control and the tools; `target` has build products.
            match (is_folder, name.as_str()) {
                (true, "target") => {}
                (true, hidden) if hidden.starts_with('.') && hidden != ".ci" => {}
                (true, _) => folders.push(path),
                (false, _) => files.extend(kind(&path).map(|kind| File { text: read(&path), path, kind })),
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn kind(path: &str) -> Option<Kind> {
    let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name.rsplit_once('.') {
        Some((_, "rs")) => Some(Kind::Rust),
        Some((_, "lua" | "c" | "toml")) => Some(Kind::Code),
        Some((_, "md")) => Some(Kind::Page),
        None | Some((_, "txt")) if path.starts_with("scripts/") || path.starts_with(".ci/") => Some(Kind::Code),
        _ => None,
    }
}
