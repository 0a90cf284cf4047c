//! The file systems that only one host sees.
//!
//! Everything here depends on the kernel: locks, sockets, shared memory and the boot clock. A directory that two
//! kernels see would be two stores, although its users expect one. So every file system that is not known to be local
//! is refused.

use crate::error::{Error, ErrorKind};

/// Numbers of `statfs`, from <linux/magic.h> and from the sources of other file systems.
const LOCAL: &[(u32, &str)] = &[
    (0x0000_ef53, "ext"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlay"),
    (0x2fc1_2fc1, "zfs"),
    (0xf2f5_2010, "f2fs"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x0000_3434, "nilfs"),
    (0x0000_f15f, "ecryptfs"),
];

const SHARED: &[(u32, &str)] = &[
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB 2"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786f_4256, "VirtualBox's shared folders"),
    (0xbacb_acbc, "VMware's shared folders"),
];

/// Refuses a file system that two kernels may see, by its number of `statfs`.
pub(super) fn check(magic: u32) -> Result<(), Error> {
    let known =
        |table: &[(u32, &'static str)]| table.iter().find(|(number, _)| *number == magic).map(|(_, kind)| *kind);
    if known(LOCAL).is_some() {
        return Ok(());
    }
    let what = match known(SHARED) {
        Some(kind) => format!("it is on {kind}, which another host may see as well"),
        None => format!("its file system (type {magic:#x}) is not known to be seen by this host alone"),
    };
    let message = format!("file: needs a local file system (ext4, xfs, btrfs, tmpfs, …): {what}; or use redis://");
    Err(Error::new(ErrorKind::Unsupported, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_file_systems_are_accepted_and_shared_ones_named() {
        for (magic, kind) in LOCAL {
            assert!(check(*magic).is_ok(), "{kind}");
        }
        for (magic, kind) in SHARED {
            let error = check(*magic).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(kind), "{error}");
        }
    }

    #[test]
    fn an_unknown_file_system_is_refused_by_its_number() {
        let error = check(0xdead_beef).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("0xdeadbeef"), "{error}");
    }
}
