//! How a Lua file becomes the source that the server gets.
//!
//! 1. Each mark, a line such as `--@open`, is replaced by the shared part that it names.
//! 2. A seeded flaw, if there is one for this script, is put in.
//! 3. Comments, blank lines and indentation are removed. The server hashes and parses every byte, and the digest stays
//!    the same when only a comment changes: then clients of both versions share one cached script.
//! 4. Each name of a field, such as `RECORD.length`, is replaced by its positions: see `positions.rs`.

use sha1_smol::Sha1;

use super::positions::with_positions;

/// A script as the server gets it.
#[derive(Debug)]
pub struct Source {
    /// The code that the server runs.
    pub text: String,
    /// The name by which the server knows it: the SHA-1 of the text, in hexadecimal.
    pub sha: String,
}

impl Source {
    pub(super) fn new(text: String) -> Self {
        Self { sha: digest(&text), text }
    }
}

/// Puts the shared parts in, and removes what the server does not need.
///
/// `patch` gets the text with its comments, as it is in the files.
pub(crate) fn assemble(own: &str, parts: &[(&str, &str)], patch: impl FnOnce(String) -> String) -> Source {
    let mut text = own.to_owned();
    for (mark, part) in parts {
        text = text.replace(mark, part);
    }
    Source::new(with_positions(&without_comments(&patch(text))))
}

/// Returns a SHA-1 in hexadecimal.
pub(super) fn digest(text: &str) -> String {
    Sha1::from(text).digest().to_string()
}

/// Removes each line that is blank or has only a comment, and the indentation of the others. A line `--&` joins the lines
/// before and after it with a blank: a line that would be too long in the file is one line for the server.
///
/// A mark that names no part stays, so that a test finds it. The tests also show that our scripts have nothing that this
/// would change: no text of several lines, and no comment after code.
pub(super) fn without_comments(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    for line in source.lines().map(str::trim_start) {
        let is_comment = line.starts_with("--") && !line.starts_with("--@");
        if line == "--&" {
            code.pop();
            code.push(' ');
        } else if !line.is_empty() && !is_comment {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Returns the path and the text of each Lua file that a server can get.
#[cfg(test)]
pub(super) fn lua_files() -> Vec<(String, String)> {
    let src = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folders = [
        "store/redis",
        "store/redis/part",
        "store/redis/pool",
        "store/redis/pool/part",
        "store/redis/node",
        "store/redis/node/part",
        "fence/lua",
    ];
    let files = folders.iter().flat_map(|folder| std::fs::read_dir(src.join(folder)).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    let lua = paths.filter(|path| path.extension().is_some_and(|extension| extension == "lua"));
    lua.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blank_lines_and_indentation_are_removed() {
        let source = "#!lua\n-- a\n\nlocal x = '--'\n  -- b\n  if x then\n\n    return x\n  end\n--@mark\n--[[ c ]]\n";
        let code = "#!lua\nlocal x = '--'\nif x then\nreturn x\nend\n--@mark\n";
        assert_eq!(without_comments(source), code);
        assert_eq!(without_comments("  return x\n--&\n    + 1\n"), "return x + 1\n");
        assert_eq!(assemble("a\n--@b\n", &[("--@b\n", "-- part\nb\n")], |text| text + "c\n").text, "a\nb\nc\n");
    }

    #[test]
    fn digest_is_the_one_of_the_server() {
        // The reply to `SCRIPT LOAD "return 1"`.
        assert_eq!(digest("return 1"), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    /// A text or a comment of several lines has a long bracket, or a line that ends with a backslash.
    #[test]
    fn every_text_and_every_comment_is_on_one_line() {
        let files = lua_files();
        assert!(files.len() > 50, "only {} files were found", files.len());
        for (path, text) in files {
            for (number, line) in text.lines().enumerate() {
                let at = format!("{path}:{}: {line}", number + 1);
                let code = line.trim_start();
                if code.starts_with("--") {
                    assert!(!code.starts_with("--["), "a long comment could go on behind its line: {at}");
                    continue;
                }
                for sign in ["[[", "[=", "\"", "\\'", "\\\\"] {
                    assert!(!code.contains(sign), "{sign} makes it unclear where a text ends: {at}");
                }
                assert!(!code.ends_with('\\'), "a text goes on behind its line: {at}");
                assert_eq!(code.matches('\'').count() % 2, 0, "a text goes on behind its line: {at}");
                let is_behind_code = code.split('\'').step_by(2).any(|outside| outside.contains("--"));
                assert!(!is_behind_code, "a comment stands behind code: {at}");
            }
        }
    }
}
