//! Attributes in short form: packed into the attribute fork of the inode.
//!
//! 1. A header of 4 bytes (total length, count), then the entries: lengths of name and value,
//!    flags, name, value. There is no padding.
//! 2. Entries stay in the order in which they were added; a replaced entry moves to the end.
//! 3. Bytes behind the total length have no meaning; this code keeps them zero.

use super::entry::{AttrFlags, MAX_NAME};
use crate::bytes::Field;
use crate::error::{Check, Problem};

/// Length of the header.
pub const HEADER_LEN: usize = 4;
/// Place of the length of header and entries, as the header states it.
pub const TOTAL: Field<u16> = Field::at(0);
/// Length of an entry without its name and value.
pub const ENTRY_OVERHEAD: usize = 3;
/// Longest name, and longest value, that can be written in short form.
pub const MAX_FIELD: usize = MAX_NAME - 1;

/// One attribute in short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Byte offset of the entry in the fork.
    pub at: usize,
    /// The attribute's namespace.
    pub flags: AttrFlags,
    /// The attribute's name, without a prefix.
    pub name: &'a [u8],
    /// The attribute's value, in bytes.
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Length of the entry in bytes.
    pub fn len(&self) -> usize {
        entry_len(self.name.len(), self.value.len())
    }

    /// Always false: an entry has at least three bytes.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// Bytes of an entry.
pub const fn entry_len(name: usize, value: usize) -> usize {
    ENTRY_OVERHEAD + name + value
}

/// Can an attribute with these lengths be written in short form?
pub const fn may_hold(name: usize, value: usize) -> bool {
    name <= MAX_FIELD && value <= MAX_FIELD
}

/// Length of header and entries.
pub fn total(fork: &[u8]) -> usize {
    usize::from(TOTAL.get(fork)).min(fork.len())
}

/// Number of entries.
pub fn count(fork: &[u8]) -> usize {
    fork.get(2).copied().unwrap_or(0).into()
}

/// Checks a whole fork in short form.
///
/// # Errors
/// A description of the first violated rule.
pub fn verify(fork: &[u8]) -> Result<(), Problem> {
    let total = usize::from(TOTAL.get(fork));
    if total < HEADER_LEN || total > fork.len() {
        return Err(
            Check::Size.failed(format!("short form of {total} bytes in a fork of {}", fork.len()))
        );
    }
    let (mut end, mut seen) = (HEADER_LEN, 0);
    for entry in entries(fork) {
        if entry.name.is_empty() {
            return Err(Check::Name.failed(format!("short form entry {seen} has no name")));
        }
        if entry.flags.intersects(AttrFlags::LOCAL | AttrFlags::INCOMPLETE) {
            return Err(Check::Flags
                .failed(format!("short form entry with flags {:#04x}", entry.flags.bits())));
        }
        entry.flags.check()?;
        end = entry.at + entry.len();
        seen += 1;
    }
    if seen != count(fork) || end != total {
        return Err(Check::Size.failed(format!(
            "short form: {seen} of {} entries end at {end} of {total} bytes",
            count(fork)
        )));
    }
    Ok(())
}

/// The entries. Stops at the first that does not fit, which [`verify`] reports.
pub fn entries(fork: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let end = total(fork);
    let mut at = HEADER_LEN;
    (0..count(fork)).map_while(move |_| {
        let head = fork.get(at..at + ENTRY_OVERHEAD)?;
        let (name, value) = (usize::from(head[0]), usize::from(head[1]));
        let name_at = at + ENTRY_OVERHEAD;
        let value_at = name_at + name;
        if value_at + value > end {
            return None;
        }
        let entry = Entry {
            at,
            flags: AttrFlags::from_bits_retain(head[2]),
            name: &fork[name_at..value_at],
            value: &fork[value_at..value_at + value],
        };
        at = value_at + value;
        Some(entry)
    })
}

fn set_header(fork: &mut [u8], total: usize, count: usize) {
    debug_assert!(total <= usize::from(u16::MAX) && count <= usize::from(u8::MAX));
    TOTAL.set(fork, total as u16);
    fork[2] = count as u8;
    fork[3] = 0;
}

/// Removes all attributes from the fork.
pub fn clear(fork: &mut [u8]) {
    fork.fill(0);
    set_header(fork, HEADER_LEN, 0);
}

/// Can the header's count hold one more entry?
pub fn countable(fork: &[u8]) -> bool {
    count(fork) < usize::from(u8::MAX)
}

/// Appends an entry.
///
/// # Panics
/// If there is no space for the entry, if name or value is longer than [`MAX_FIELD`], or if
/// [`countable`] returns false; the caller must check this first.
pub fn push(fork: &mut [u8], flags: AttrFlags, name: &[u8], value: &[u8]) {
    assert!(may_hold(name.len(), value.len()) && countable(fork), "does not go into short form");
    let (at, count) = (total(fork), count(fork));
    let name_at = at + ENTRY_OVERHEAD;
    let value_at = name_at + name.len();
    let end = value_at + value.len();
    fork[at..name_at].copy_from_slice(&[name.len() as u8, value.len() as u8, flags.bits()]);
    fork[name_at..value_at].copy_from_slice(name);
    fork[value_at..end].copy_from_slice(value);
    set_header(fork, end, count + 1);
}

/// Removes the entry of `len` bytes at `at`.
///
/// # Panics
/// If no entry can lie there.
pub fn remove(fork: &mut [u8], at: usize, len: usize) {
    let (end, count) = (total(fork), count(fork));
    assert!(at >= HEADER_LEN && at + len <= end && count > 0, "no such short form entry");
    fork.copy_within(at + len..end, at);
    fork[end - len..end].fill(0);
    set_header(fork, end - len, count - 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_and_remove() {
        let mut fork = [0xee; 100];
        clear(&mut fork);
        push(&mut fork, AttrFlags::empty(), b"k", b"vv");
        push(&mut fork, AttrFlags::ROOT, b"name", b"");
        push(&mut fork, AttrFlags::SECURE, b"k", b"x");
        verify(&fork).unwrap();
        assert_eq!(fork[..10], [0, 4 + 6 + 7 + 5, 3, 0, 1, 2, 0, b'k', b'v', b'v']);
        let second = entries(&fork).nth(1).unwrap();
        assert_eq!((second.at, second.len(), second.name), (10, 7, &b"name"[..]));
        remove(&mut fork, 10, 7);
        verify(&fork).unwrap();
        let left: Vec<_> = entries(&fork).map(|e| (e.flags, e.value.to_vec())).collect();
        assert_eq!(
            left,
            [(AttrFlags::empty(), b"vv".to_vec()), (AttrFlags::SECURE, b"x".to_vec())]
        );
        assert!(fork[15..].iter().all(|b| *b == 0));
    }

    /// A file linked as "f" and "g", with user.k=vv, as a kernel wrote it.
    #[test]
    fn parent_pointers_as_the_kernel_writes_them() {
        use crate::Naming;
        let hex = "002a0300010c0866000000000000008000000000010200 6b7676010c0867\
                   0000000000040080321ea7f2";
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let fork: Vec<u8> = digits
            .chunks(2)
            .map(|d| u8::from_str_radix(core::str::from_utf8(d).unwrap(), 16).unwrap())
            .collect();
        verify(&fork).unwrap();
        let hash = |e: Entry<'_>| super::super::hash(Naming::Exact, e.flags, e.name, e.value);
        let hashes: Vec<u32> = entries(&fork).map(hash).collect();
        assert_eq!(hashes, [0xe6, 0x6b, 0x400e7]);
    }

    #[test]
    fn any_bytes_are_refused_or_read() {
        let mut rng = uxfs_testkit::Rng::new(0x5eed);
        let mut next = move || (rng.bits() >> 33) as usize;
        for round in 0..20_000 {
            let mut fork = vec![0; next() % 150];
            if fork.len() > 60 {
                clear(&mut fork);
                push(&mut fork, AttrFlags::ROOT, b"abcdef", b"0123456789");
                push(&mut fork, AttrFlags::empty(), b"x", b"01");
            }
            for _ in 0..next() % 4 {
                let len = fork.len().max(1);
                if let Some(byte) = fork.get_mut(next() % len.min(40)) {
                    *byte = next() as u8;
                }
            }
            let good = verify(&fork).is_ok();
            let seen = entries(&fork).count();
            assert!(!good || seen == count(&fork), "round {round}: {fork:?}");
        }
    }
}
