//! Matches shell patterns as `find -name` and `-path` do: `*` and `?` also match slashes and leading
//! dots, `[...]` matches sets and ranges, `\` quotes the next byte.

/// Does the pattern match the whole of `text`? `fold` ignores case.
pub(crate) fn matches(pattern: &[u8], text: &[u8], fold: bool) -> bool {
    // Positions to resume from, after the last star, on a mismatch.
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match step(&pattern[p..], text[t], fold) {
            Step::Star => {
                p += 1;
                star = Some((p, t));
            }
            Step::Took(count) => {
                p += count;
                t += 1;
            }
            Step::No => match star {
                Some((after, from)) => {
                    (p, t) = (after, from + 1);
                    star = Some((after, from + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

enum Step {
    /// The pattern continues with a star.
    Star,
    /// The byte matched this many bytes of the pattern.
    Took(usize),
    /// The byte did not match.
    No,
}

fn step(pattern: &[u8], byte: u8, fold: bool) -> Step {
    let same = |a: u8, b: u8| a == b || fold && a.eq_ignore_ascii_case(&b);
    match pattern {
        [] => Step::No,
        [b'*', ..] => Step::Star,
        [b'?', ..] => Step::Took(1),
        [b'[', ..] => match set(pattern, byte, fold) {
            Some((true, len)) => Step::Took(len),
            Some((false, _)) => Step::No,
            None if byte == b'[' => Step::Took(1),
            None => Step::No,
        },
        [b'\\', literal, ..] if same(*literal, byte) => Step::Took(2),
        [b'\\', _, ..] => Step::No,
        [literal, ..] if same(*literal, byte) => Step::Took(1),
        _ => Step::No,
    }
}

/// Is the byte in the set at the start of the pattern, and how long is the set? `None` if the set has
/// no end.
fn set(pattern: &[u8], byte: u8, fold: bool) -> Option<(bool, usize)> {
    let mut at = 1;
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    at += usize::from(negated);
    let first = at;
    let mut found = false;
    let mut try_byte = |low: u8, high: u8| {
        found |= (low..=high).contains(&byte);
        if fold {
            found |= (low..=high).contains(&byte.to_ascii_lowercase());
            found |= (low..=high).contains(&byte.to_ascii_uppercase());
        }
    };
    loop {
        let mut low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((found != negated, at + 1));
        }
        if low == b'[' && pattern.get(at + 1) == Some(&b':') {
            let rest = &pattern[at + 2..];
            let end = rest.windows(2).position(|w| w == b":]")?;
            for candidate in 0..=255u8 {
                if class(&rest[..end], candidate) {
                    try_byte(candidate, candidate);
                }
            }
            at += end + 4;
            continue;
        }
        if low == b'\\' {
            at += 1;
            low = *pattern.get(at)?;
        }
        at += 1;
        if pattern.get(at) == Some(&b'-') && pattern.get(at + 1).is_some_and(|b| *b != b']') {
            let high = *pattern.get(at + 1)?;
            try_byte(low, high);
            at += 2;
        } else {
            try_byte(low, low);
        }
    }
}

fn class(name: &[u8], byte: u8) -> bool {
    match name {
        b"alnum" => byte.is_ascii_alphanumeric(),
        b"alpha" => byte.is_ascii_alphabetic(),
        b"blank" => matches!(byte, b' ' | b'\t'),
        b"cntrl" => byte.is_ascii_control(),
        b"digit" => byte.is_ascii_digit(),
        b"graph" => byte.is_ascii_graphic(),
        b"lower" => byte.is_ascii_lowercase(),
        b"print" => byte.is_ascii_graphic() || byte == b' ',
        b"punct" => byte.is_ascii_punctuation(),
        b"space" => byte.is_ascii_whitespace() || byte == 0x0b,
        b"upper" => byte.is_ascii_uppercase(),
        b"xdigit" => byte.is_ascii_hexdigit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_find() {
        let m = |p: &str, t: &str| matches(p.as_bytes(), t.as_bytes(), false);
        assert!(m("*.c", "a.c") && !m("*.c", "a.h"));
        assert!(m("*", "") && m("**", "abc") && !m("?", ""));
        assert!(m("a*b*c", "axxbyyc") && !m("a*b*c", "axxbyy"));
        assert!(m("[a-c]x", "bx") && !m("[!a-c]x", "bx") && m("[]]", "]"));
        assert!(m("[[:digit:]]*", "1x") && !m("[[:digit:]]", "x"));
        assert!(m("\\*", "*") && !m("\\*", "x") && m("[", "["));
        assert!(m("*/b", "./a/b") && m("*a", ".a"));
        assert!(matches(b"*.TXT", b"x.txt", true));
    }
}
