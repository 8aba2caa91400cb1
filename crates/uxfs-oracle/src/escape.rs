//! Raw bytes as one word of printable ASCII, and back.
//!
//! Bytes that separate the words of a listing (space, `=`), the backslash and everything outside
//! printable ASCII become `\xNN`.

/// The word for `bytes`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'\\' && byte != b'=' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// The bytes that `word` stands for.
pub(crate) fn unescape(word: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let digits: Vec<u8> = rest.by_ref().take(3).collect();
        let number = std::str::from_utf8(&digits).ok().and_then(|d| d.strip_prefix('x'));
        match number.map(|hex| u8::from_str_radix(hex, 16)) {
            Some(Ok(byte)) if digits.len() == 3 => out.push(byte),
            _ => return Err(format!("bad escape in '{word}'")),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips() {
        let all: Vec<u8> = (0..=255).collect();
        let word = escape(&all);
        assert!(word.bytes().all(|b| b.is_ascii_graphic() && b != b'='));
        assert_eq!(unescape(&word).unwrap(), all);
        assert!(unescape("a\\x2").is_err());
        assert!(unescape("a\\y20").is_err());
    }
}
