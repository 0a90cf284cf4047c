//! The options of the command line.

use leasehold_testkit::conformance::Backend;
use leasehold_testkit::times::Share;

pub(crate) const USAGE: &str = "leasehold-lab times [--stores memory,file,redis,rediss,quorum] [--quick]";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) stores: Vec<Backend>,
    pub(crate) share: Share,
}

impl Options {
    /// Parses the arguments. Returns `None` if they are not valid.
    pub(crate) fn of(mut args: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { stores: Backend::ALL.to_vec(), share: Share::Whole };
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--stores" => options.stores = args.next()?.split(',').map(store).collect::<Option<_>>()?,
                "--quick" => options.share = Share::Quick,
                _ => return None,
            }
        }
        Some(options)
    }
}

fn store(name: &str) -> Option<Backend> {
    match name {
        "memory" => Some(Backend::Memory),
        "file" => Some(Backend::File),
        "redis" => Some(Backend::Redis),
        "rediss" => Some(Backend::RedisTls),
        "quorum" => Some(Backend::Quorum),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Option<Options> {
        Options::of(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn valid_options_are_parsed_and_invalid_ones_are_rejected() {
        let all = parse("").expect("valid options");
        assert_eq!((all.stores.as_slice(), all.share), (Backend::ALL, Share::Whole));
        let some = parse("--quick --stores quorum,memory").expect("valid options");
        assert_eq!((some.stores, some.share), (vec![Backend::Quorum, Backend::Memory], Share::Quick));
        for nonsense in ["--stores", "--stores etcd", "--stores redis,", "--quick yes", "redis"] {
            assert!(parse(nonsense).is_none(), "{nonsense}");
        }
    }
}
