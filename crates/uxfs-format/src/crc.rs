//! The checksum of every v5 structure: CRC-32C over the whole object, with the checksum field zero.

/// CRC-32C of `object` with the four bytes at `field` counted as zero.
pub fn compute(object: &[u8], field: usize) -> u32 {
    let crc = crc32c::crc32c(&object[..field]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &object[field + 4..])
}

/// Stores the checksum of `object` in its own field (little-endian, unlike all else in XFS).
pub fn stamp(object: &mut [u8], field: usize) {
    let crc = compute(object, field);
    object[field..field + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Does the stored checksum of `object` agree with its content?
pub fn matches(object: &[u8], field: usize) -> bool {
    compute(object, field).to_le_bytes() == object[field..field + 4]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamped_object_matches_until_a_bit_flips() {
        let mut object = *b"XFSB some object with a hole: ....and a tail";
        stamp(&mut object, 30);
        assert!(matches(&object, 30));
        object[0] ^= 1;
        assert!(!matches(&object, 30));
    }

    #[test]
    fn check_value_of_the_polynomial() {
        // The standard check string "123456789", preceded by a zeroed field.
        assert_eq!(crc32c::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(compute(b"\x01\x02\x03\x04", 0), crc32c::crc32c(&[0; 4]));
    }
}
