//! Quotes and escapes names as the GNU tools do.
//!
//! On a terminal, `ls` quotes names that a shell would interpret, and writes unprintable characters as
//! `$'\n'` ([`shell`]). In a pipe, names are raw. `find -ls` escapes as in C ([`escaped`]). Messages
//! quote only names with unprintable characters, which could disturb a terminal ([`message`]).

/// Characters that a shell interprets anywhere in a word.
const SPECIAL: &[u8] = b" !\"$&()*;<=>[\\^`|";

/// The name as `ls` shows it on a terminal: `'a b'`, `"it's"`, `'a'$'\n''b'`.
pub(crate) fn shell(name: &[u8]) -> Vec<u8> {
    let mut plain = !name.is_empty() && !matches!(name[0], b'#' | b'~');
    let mut printable = true;
    let mut quote = false;
    for (text, good) in pieces(name) {
        printable &= good;
        quote |= text.contains(&b'\'');
        plain &= good && !text.iter().any(|b| SPECIAL.contains(b) || *b == b'\'' || *b == b'?');
        plain &= !(name.len() == 1 && matches!(text, b"{" | b"}"));
    }
    if plain {
        return name.to_vec();
    }
    let double_ok = !name.iter().any(|b| matches!(b, b'"' | b'$' | b'`' | b'\\' | b'!'));
    if printable && quote && double_ok {
        return [b"\"", name, b"\""].concat();
    }
    let mut out = vec![b'\''];
    let mut escaping = false;
    for (text, good) in pieces(name) {
        if good {
            if escaping {
                out.extend_from_slice(b"''");
                escaping = false;
            }
            for byte in text {
                match byte {
                    b'\'' => out.extend_from_slice(b"'\\''"),
                    _ => out.push(*byte),
                }
            }
            continue;
        }
        if !escaping {
            out.extend_from_slice(b"'$'");
            escaping = true;
        }
        for byte in text {
            out.extend_from_slice(&c_escape(*byte));
        }
    }
    out.push(b'\'');
    out
}

/// The name as messages show it: on one line, without control characters.
pub(crate) fn message(name: &[u8]) -> Vec<u8> {
    let harmless = !name.is_empty() && pieces(name).all(|(_, good)| good);
    if harmless { name.to_vec() } else { shell(name) }
}

/// The name as `find -ls` shows it: blanks and everything except printable ASCII are escaped.
pub(crate) fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b' ' | b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'!'..=b'~' => out.push(*byte),
            _ => out.extend_from_slice(&c_escape(*byte)),
        }
    }
    out
}

/// The name as `ls -Q` shows it: a C string.
pub(crate) fn c_string(name: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for (text, good) in pieces(name) {
        for byte in text {
            match byte {
                b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
                _ if good => out.push(*byte),
                _ => out.extend_from_slice(&c_escape(*byte)),
            }
        }
    }
    out.push(b'"');
    out
}

/// The name as GNU tools show it on a terminal without quoting: `?` for unprintable characters.
pub(crate) fn masked(name: &[u8]) -> Vec<u8> {
    pieces(name).flat_map(|(text, good)| if good { text.to_vec() } else { vec![b'?'] }).collect()
}

/// Columns of a text; unprintable characters have no width.
pub(crate) fn width(text: &[u8]) -> usize {
    use unicode_width::UnicodeWidthStr;
    pieces(text).filter(|(_, good)| *good).map(|(c, _)| String::from_utf8_lossy(c).width()).sum()
}

fn c_escape(byte: u8) -> Vec<u8> {
    match byte {
        0x07 => b"\\a".to_vec(),
        0x08 => b"\\b".to_vec(),
        0x09 => b"\\t".to_vec(),
        0x0a => b"\\n".to_vec(),
        0x0b => b"\\v".to_vec(),
        0x0c => b"\\f".to_vec(),
        0x0d => b"\\r".to_vec(),
        _ => format!("\\{byte:03o}").into_bytes(),
    }
}

/// The characters of a name, each with whether it is printable. Bytes that are not UTF-8 come
/// separately.
fn pieces(name: &[u8]) -> impl Iterator<Item = (&[u8], bool)> {
    name.utf8_chunks().flat_map(|chunk| {
        let text = chunk.valid();
        let good = text
            .char_indices()
            .map(move |(at, c)| (text.as_bytes()[at..at + c.len_utf8()].as_ref(), !c.is_control()));
        good.chain(chunk.invalid().chunks(1).map(|byte| (byte, false)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_in_ls() {
        let shown = |name: &[u8]| String::from_utf8(shell(name)).unwrap();
        assert_eq!(shown(b"plain-1.txt"), "plain-1.txt");
        assert_eq!(shown(b"a b"), "'a b'");
        assert_eq!(shown(b"it's"), "\"it's\"");
        assert_eq!(shown(b"it's $x"), "'it'\\''s $x'");
        assert_eq!(shown(b"a\nb"), "'a'$'\\n''b'");
        assert_eq!(shown(b"\xff"), "''$'\\377'");
        assert_eq!(shown(b"~x"), "'~x'");
        assert_eq!(shown(b"x~"), "x~");
        assert_eq!(shown("é".as_bytes()), "é");
        assert_eq!(escaped(b"a b\n"), b"a\\ b\\n");
    }
}
