//! Random names, values and lists.

use uxfs_format::acl::Acl;
use uxfs_oracle::Rng;

/// A name: mostly short words, sometimes long, sometimes random bytes.
pub(crate) fn name(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(10) {
        0 => 1 + rng.index(255),
        1 | 2 => 1 + rng.index(60),
        _ => 3 + rng.index(12),
    };
    let any = rng.once_in(6);
    let mut name = rng.bytes(len);
    for byte in &mut name {
        if !any {
            *byte = b'a' + *byte % 26;
        } else if matches!(*byte, 0 | b'/') {
            *byte = b'_';
        }
    }
    if matches!(&name[..], b"." | b"..") { b"dots".to_vec() } else { name }
}

/// An attribute's full name, from a small set, so that names repeat.
pub(crate) fn xattr_name(rng: &mut Rng) -> Vec<u8> {
    let space = [&b"user."[..], b"trusted.", b"security."][rng.index(3)];
    let len = match rng.below(12) {
        0 => 1 + rng.index(240),
        _ => 1,
    };
    let mut rest = rng.bytes(len);
    rest.iter_mut().for_each(|b| *b = b'a' + *b % 12);
    [space, &rest].concat()
}

/// An attribute's value.
pub(crate) fn xattr_value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.below(20) {
        0 => rng.index(65_537),
        1 | 2 => rng.index(9_000),
        3..=5 => rng.index(1_500),
        6 => 0,
        _ => rng.index(120),
    };
    rng.bytes(len)
}

/// An access list in Linux' form, with up to `users` named users.
pub(crate) fn acl(rng: &mut Rng, users: usize) -> Vec<u8> {
    let users = rng.index(users + 1);
    let mut raw = vec![2, 0, 0, 0];
    let mut put = |tag: u16, perm: u64, id: u32| {
        raw.extend_from_slice(&tag.to_le_bytes());
        raw.extend_from_slice(&(perm as u16).to_le_bytes());
        raw.extend_from_slice(&id.to_le_bytes());
    };
    put(1, rng.below(8), u32::MAX);
    for user in 0..users {
        put(2, rng.below(8), 1000 + user as u32);
    }
    put(4, rng.below(8), u32::MAX);
    if users > 0 {
        put(0x10, rng.below(8), u32::MAX);
    }
    put(0x20, rng.below(8), u32::MAX);
    assert!(Acl::from_linux(&raw).unwrap().is_some());
    raw
}
