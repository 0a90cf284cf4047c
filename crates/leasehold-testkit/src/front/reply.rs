//! Replies, as Redis writes them.

pub(super) fn status(text: &str) -> Vec<u8> {
    format!("+{text}\r\n").into_bytes()
}

pub(super) fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}

pub(super) fn int(number: u64) -> Vec<u8> {
    format!(":{number}\r\n").into_bytes()
}

pub(super) fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

pub(super) fn array(items: &[Vec<u8>]) -> Vec<u8> {
    many('*', items)
}

pub(super) fn push(items: &[Vec<u8>]) -> Vec<u8> {
    many('>', items)
}

pub(super) fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = format!("%{}\r\n", pairs.len()).into_bytes();
    for (key, value) in pairs {
        bytes.extend(bulk(key));
        bytes.extend(value);
    }
    bytes
}

fn many(kind: char, items: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("{kind}{}\r\n", items.len()).into_bytes();
    bytes.extend(items.concat());
    bytes
}
