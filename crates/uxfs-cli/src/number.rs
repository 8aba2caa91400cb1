//! Parses and formats sizes as coreutils do.

/// Parses a size in bytes with an optional suffix: `K M G T P E` (powers of 1024, also `KiB`) or
/// `KB MB …` (powers of 1000).
pub(crate) fn size(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    let number: u64 =
        if number.is_empty() && !suffix.is_empty() { 1 } else { number.parse().ok()? };
    let suffix = suffix.strip_suffix("iB").unwrap_or(suffix);
    let (letter, base) = match suffix.strip_suffix('B') {
        Some("") => return None,
        Some(letter) => (letter, 1000u64),
        None => (suffix, 1024),
    };
    let power = match letter {
        "" => 0,
        "b" => return number.checked_mul(512),
        "K" | "k" => 1,
        "M" | "m" => 2,
        "G" | "g" => 3,
        "T" | "t" => 4,
        "P" => 5,
        "E" => 6,
        _ => return None,
    };
    number.checked_mul(base.pow(power))
}

/// Formats a size as `ls -h` does: at most three digits and a letter, rounded up.
pub(crate) fn human(bytes: u64) -> String {
    const LETTERS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut scale: u128 = 1;
    while u128::from(bytes) >= scale * 1024 && unit + 1 < LETTERS.len() {
        unit += 1;
        scale *= 1024;
    }
    loop {
        let bytes = u128::from(bytes);
        if unit == 0 {
            return bytes.to_string();
        }
        let tenths = (bytes * 10).div_ceil(scale);
        if tenths < 100 {
            return format!("{}.{}{}", tenths / 10, tenths % 10, LETTERS[unit]);
        }
        let whole = bytes.div_ceil(scale);
        if whole < 1024 || unit + 1 == LETTERS.len() {
            return format!("{whole}{}", LETTERS[unit]);
        }
        unit += 1;
        scale *= 1024;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_with_suffixes() {
        assert_eq!(size("4G"), Some(4 << 30));
        assert_eq!(size("4GB"), Some(4_000_000_000));
        assert_eq!(size("2KiB"), Some(2048));
        assert_eq!(size("12"), Some(12));
        assert_eq!(size("99999999999E"), None);
        assert_eq!(size("x"), None);
        assert_eq!(size(""), None);
    }

    #[test]
    fn human_sizes_equal_those_of_ls() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((10 << 10) + 1, "11K"),
            ((1 << 20) - 1, "1.0M"),
            (1 << 20, "1.0M"),
            (5 << 30, "5.0G"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }
}
