//! Other names for names: a permutation of the names of each length, chosen by a secret key.
//!
//! 1. A name keeps its length and its hash, so hash trees stay valid. It gets no NUL, and a name of a file
//!    gets no slash.
//! 2. It is a permutation: different names get different names, so names stay unique in their directory
//!    without a table. The same name becomes the same name everywhere, so parent pointers and the
//!    components of link targets still fit the directories.
//! 3. Names of at most four bytes, among them `.` and `..`, have no other name with their hash that
//!    differs enough, and stay. So does `lost+found`, which xfs_repair looks for by its name.
//! 4. Who knows the key can undo it, so the key must not be in the dump.
//!
//! The hash XORs the bytes of a name, each rotated by seven bits more than the next. Two bytes at a
//! distance have bits that reach the same bit of the hash; flipping both keeps the hash. A round pairs up
//! all bytes at one distance and flips such bits. Which ones, a keyed hash over what the round leaves as
//! it is decides; so a round undoes itself, and rounds together are a permutation. A pair that would
//! become invalid stays as it is, as does the pair that would become it.

use sha2::{Digest, Sha256};

/// Longest name that stays as it is.
pub(crate) const KEPT_LEN: usize = 4;
/// Name that stays as it is, wherever it is used.
pub(crate) const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Distances of the bytes of a pair, in the order of the rounds.
const DISTANCES: [usize; 5] = [5, 9, 4, 1, 14];
/// How often all rounds are done.
const PASSES: u8 = 2;

/// Gives names other names.
#[derive(Clone)]
pub struct Names {
    keyed: Sha256,
}

/// The bits of the first byte of a pair that meet bits of the second, and how far those are shifted up.
#[derive(Clone, Copy)]
struct Pairing {
    distance: usize,
    bits: u8,
    shift: i8,
}

impl Pairing {
    fn new(distance: usize) -> Self {
        let up = 7 * distance % 32;
        match up {
            0..8 => Self { distance, bits: 0xff >> up, shift: up as i8 },
            25..32 => Self { distance, bits: 0xff << (32 - up), shift: up as i8 - 32 },
            _ => Self { distance, bits: 0, shift: 0 },
        }
    }

    /// The bits of the second byte that go with these of the first.
    fn other(self, bits: u8) -> u8 {
        match self.shift {
            up @ 0.. => bits << up,
            down => bits >> -down,
        }
    }

    /// The first bytes of the pairs in a name of `len` bytes: every byte is in at most one pair.
    fn firsts(self, len: usize, odd: bool) -> impl Iterator<Item = usize> {
        let wanted = usize::from(odd);
        let fits = move |at: &usize| at / self.distance % 2 == wanted;
        (0..len.saturating_sub(self.distance)).filter(fits)
    }
}

/// What is named: it decides which bytes a name may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A file, or a component of a path.
    File,
    /// An attribute, whose name may have slashes.
    Attr,
}

impl Kind {
    fn allows(self, byte: u8) -> bool {
        byte != 0 && (byte != b'/' || self == Self::Attr)
    }
}

impl Names {
    /// The permutation that belongs to a key.
    pub fn new(key: &[u8]) -> Self {
        let mut keyed = Sha256::new();
        keyed.update(Sha256::digest(key));
        // The key fills a block of the hash, which is then computed once.
        keyed.update([0x75; 32]);
        Self { keyed }
    }

    /// Replaces a name by its other name. One that no file or attribute can have has none, and is cleared.
    pub(crate) fn replace(&self, name: &mut [u8], kind: Kind) {
        if !name.iter().all(|byte| kind.allows(*byte)) {
            name.fill(0);
            return;
        }
        if name.len() <= KEPT_LEN || name == LOST_AND_FOUND {
            return;
        }
        self.permute(name, kind);
        // Its place is taken, so the name that would get it goes once more round the cycle.
        while name == LOST_AND_FOUND {
            self.permute(name, kind);
        }
    }

    fn permute(&self, name: &mut [u8], kind: Kind) {
        let mut round = 0;
        for _ in 0..PASSES {
            for pairing in DISTANCES.map(Pairing::new) {
                for odd in [false, true] {
                    round += 1;
                    self.round(name, kind, pairing, odd, round);
                }
            }
        }
    }

    fn round(&self, name: &mut [u8], kind: Kind, pairing: Pairing, odd: bool, round: u8) {
        let mut rest = name.to_vec();
        let mut pairs = 0;
        for first in pairing.firsts(name.len(), odd) {
            let flipped = name[first] & pairing.bits;
            rest[first] ^= flipped;
            rest[first + pairing.distance] ^= pairing.other(flipped);
            pairs += 1;
        }
        if pairs == 0 {
            return;
        }
        let mut choices = Choices::new(&self.keyed, &rest, round);
        for first in pairing.firsts(name.len(), odd) {
            let second = first + pairing.distance;
            let flipped = choices.next() & pairing.bits;
            let (a, b) = (name[first] ^ flipped, name[second] ^ pairing.other(flipped));
            if kind.allows(a) && kind.allows(b) {
                (name[first], name[second]) = (a, b);
            }
        }
    }
}

/// Bytes that follow from the key, the round and what the round leaves.
struct Choices {
    state: Sha256,
    bytes: [u8; 32],
    used: usize,
    block: u8,
}

impl Choices {
    fn new(keyed: &Sha256, rest: &[u8], round: u8) -> Self {
        let mut state = keyed.clone();
        state.update([round]);
        state.update(rest);
        Self { state, bytes: [0; 32], used: 32, block: 0 }
    }

    fn next(&mut self) -> u8 {
        if self.used == self.bytes.len() {
            let mut state = self.state.clone();
            state.update([0, self.block]);
            self.bytes = state.finalize().into();
            self.block = self.block.wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.bytes[self.used - 1]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uxfs_format::Naming;
    use uxfs_testkit::Rng;

    use super::*;

    fn replaced(names: &Names, name: &[u8]) -> Vec<u8> {
        let mut other = name.to_vec();
        names.replace(&mut other, Kind::File);
        other
    }

    #[test]
    fn names_keep_length_and_hash_and_stay_valid() {
        let names = Names::new(b"a key");
        let mut rng = Rng::new(7);
        let mut same = 0;
        for len in 1..=255 {
            for _ in 0..20 {
                let name: Vec<u8> = (0..len).map(|_| b'a' + rng.below(26) as u8).collect();
                let other = replaced(&names, &name);
                assert_eq!(other.len(), name.len());
                assert_eq!(Naming::Exact.hash(&other), Naming::Exact.hash(&name), "{name:?}");
                assert!(other.iter().all(|byte| Kind::File.allows(*byte)), "{other:?}");
                if len <= KEPT_LEN {
                    assert_eq!(other, name);
                }
                same += usize::from(len > KEPT_LEN && other == name);
            }
        }
        assert!(same <= 3, "{same} names did not change");
    }

    /// All names with one hash that five bytes can have: each gets another one's name, and none two.
    #[test]
    fn it_is_a_permutation() {
        let names = Names::new(b"");
        for start in [&b"names"[..], b"\x01\x01\x01\x01\x01", b"/\x2e\x80.\xff"] {
            let (one, four) = (Pairing::new(1), Pairing::new(4));
            let mut all: HashSet<Vec<u8>> = HashSet::from([start.to_vec()]);
            let mut left = vec![start.to_vec()];
            while let Some(name) = left.pop() {
                for (pairing, first) in [(one, 0), (one, 1), (one, 2), (one, 3), (four, 0)] {
                    for bit in (0..8).map(|bit| 1 << bit).filter(|bit| bit & pairing.bits != 0) {
                        let mut next = name.clone();
                        next[first] ^= bit;
                        next[first + pairing.distance] ^= pairing.other(bit);
                        if all.insert(next.clone()) {
                            left.push(next);
                        }
                    }
                }
            }
            assert_eq!(all.len(), 256);
            all.retain(|name| name.iter().all(|byte| Kind::File.allows(*byte)));
            let others: HashSet<Vec<u8>> = all.iter().map(|name| replaced(&names, name)).collect();
            assert_eq!(others, all);
        }
        let mut many: Vec<Vec<u8>> = (0..50_000).map(|n| format!("file{n}").into_bytes()).collect();
        many.push(LOST_AND_FOUND.to_vec());
        let others: HashSet<Vec<u8>> = many.iter().map(|name| replaced(&names, name)).collect();
        assert_eq!(others.len(), many.len());
    }

    #[test]
    fn a_name_follows_from_the_key_alone() {
        let (one, two) = (Names::new(b"one"), Names::new(b"two"));
        let name = b"a name of some length";
        assert_eq!(replaced(&one, name), replaced(&Names::new(b"one"), name));
        assert_ne!(replaced(&one, name), replaced(&two, name));
        for kept in [&b"."[..], b"..", b"bin", LOST_AND_FOUND] {
            assert_eq!(replaced(&one, kept), kept);
        }
    }

    /// Attributes may have slashes in their names, and what nothing can be named is cleared.
    #[test]
    fn names_of_attributes_may_have_slashes() {
        let names = Names::new(b"key");
        let mut name = *b"com.example/some/key";
        names.replace(&mut name, Kind::Attr);
        assert_eq!(Naming::Exact.hash(&name), Naming::Exact.hash(b"com.example/some/key"));
        assert!(name != *b"com.example/some/key" && !name.contains(&0));
        for (mut name, kind) in [(*b"a/slash", Kind::File), (*b"a\0 byte", Kind::Attr)] {
            names.replace(&mut name, kind);
            assert_eq!(name, [0; 7]);
        }
    }

    /// Every byte of long enough names depends on every other.
    #[test]
    fn a_changed_letter_changes_the_whole_name() {
        let names = Names::new(b"key");
        let mut changed = [0; 24];
        for n in 0..200 {
            let name = format!("document-number-{n:08}").into_bytes();
            let mut near = name.clone();
            near[n % 24] ^= 1;
            let (a, b) = (replaced(&names, &name), replaced(&names, &near));
            for at in 0..24 {
                changed[at] += usize::from(a[at] != b[at]);
            }
        }
        assert!(changed.iter().all(|count| *count > 100), "{changed:?}");
    }

    /// Undone with the key: each round undoes itself. This is why the key must not be in the dump.
    #[test]
    fn rounds_undo_themselves() {
        let names = Names::new(b"key");
        let mut name = *b"some-file-name.txt";
        let mut round = 0;
        for pairing in DISTANCES.map(Pairing::new) {
            for odd in [false, true] {
                round += 1;
                let before = name;
                names.round(&mut name, Kind::File, pairing, odd, round);
                let mut back = name;
                names.round(&mut back, Kind::File, pairing, odd, round);
                assert_eq!(back, before);
            }
        }
    }
}
