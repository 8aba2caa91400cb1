//! Undoes a short burst of flipped bits by the checksum: the difference between the stored and the
//! computed CRC-32C tells where the bits are.
//!
//! 1. Only the shortest bursts are undone: where another, longer damage could be mistaken for one with
//!    a probability of more than about 1 in 1000, nothing is changed.
//! 2. The caller verifies the structure afterwards.

use uxfs_format::crc;

/// The polynomial of CRC-32C, reflected.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// One in this many: the probability at most that other damage looks like a burst.
const MISTAKES: u64 = 1000;

/// Number of bits from the first to the last that is set.
const fn span(bits: u32) -> u32 {
    if bits == 0 { 0 } else { 32 - bits.leading_zeros() - bits.trailing_zeros() }
}

/// The longest burst in bits that is undone in an object of `len` bytes.
fn longest(len: usize) -> u32 {
    // Places times patterns must stay below 2^32 / MISTAKES.
    let patterns = (u64::from(u32::MAX) / MISTAKES) / (8 * len as u64).max(1);
    64 - patterns.leading_zeros()
}

/// One step of the shift register backwards, over a bit that is 0.
const fn back(register: u32) -> u32 {
    if register >> 31 != 0 { (register ^ POLYNOMIAL) << 1 | 1 } else { register << 1 }
}

/// Undoes a burst of flipped bits in `object`, whose checksum is at `field`. False if there is no
/// short burst that explains the checksum; `object` is unchanged then.
pub(crate) fn undo(object: &mut [u8], field: usize) -> bool {
    let Some(stored) = object.get(field..).and_then(|tail| tail.first_chunk::<4>()) else {
        return false;
    };
    let wanted = crc::compute(object, field);
    let stored = stored.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    let difference = stored ^ wanted;
    let most = longest(object.len());
    let is_burst = |bits: u32| span(bits) <= most || span(bits.swap_bytes()) <= most;
    if difference == 0 || most == 0 {
        return false;
    }
    if is_burst(difference) {
        crc::stamp(object, field);
        return true;
    }
    let mut register = difference;
    for start in (0..object.len()).rev() {
        for _ in 0..8 {
            register = back(register);
        }
        let flipped = flips(register);
        let used = 4 - (register.leading_zeros() / 8) as usize;
        let inside = start + used <= object.len();
        let apart = start + used <= field || start >= field + 4;
        if register & 0xff != 0 && is_burst(register) && inside && apart {
            for (byte, flip) in object[start..].iter_mut().zip(flipped) {
                *byte ^= flip;
            }
            return true;
        }
    }
    false
}

/// The bytes to flip, first the one that the register holds lowest.
fn flips(register: u32) -> [u8; 4] {
    [0, 8, 16, 24].map(|shift| (register >> shift) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(len: usize) -> Vec<u8> {
        let mut object: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
        crc::stamp(&mut object, 100);
        object
    }

    #[test]
    fn short_bursts_are_undone_in_both_orders_of_bits() {
        let sound = object(512);
        let longest = longest(512);
        assert!((8..=12).contains(&longest));
        for start in (0..4096 - 12).step_by(11) {
            for len in 1..=longest {
                let mut damaged = sound.clone();
                for bit in [start, start + len as usize - 1] {
                    damaged[bit / 8] ^= 0x80 >> (bit % 8);
                }
                assert!(len == 1 || damaged != sound);
                let in_field = |bit: usize| (100..104).contains(&(bit / 8));
                let crosses = in_field(start) != in_field(start + len as usize - 1);
                if damaged != sound && !crosses {
                    assert!(undo(&mut damaged, 100), "{start}+{len}");
                    assert!(damaged == sound, "{start}+{len}");
                }
            }
        }
    }

    #[test]
    fn long_damage_is_left_alone() {
        let sound = object(512);
        let mut mistaken = 0;
        for start in 0..400 {
            let mut damaged = sound.clone();
            for (at, byte) in damaged[start + 4..start + 40].iter_mut().enumerate() {
                *byte = byte.wrapping_mul(31).wrapping_add((start + at) as u8);
            }
            let before = damaged.clone();
            match undo(&mut damaged, 100) {
                true => mistaken += 1,
                false => assert!(damaged == before),
            }
        }
        assert!(mistaken < 4, "{mistaken} of 400");
    }
}
