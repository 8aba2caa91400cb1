//! Option files (`-c options=FILE`, `-c defaults=FILE`), in the format of `mkfs.xfs`.
//!
//! 1. A section is an option letter, and each line below it is one option: `[metadata]`, then
//!    `rmapbt=1`.
//! 2. Comments are lines that start with `;` or `#`, and the text behind ` ;` in a line.
//! 3. An option that occurs twice, in an options file or in the file and on the command line, is
//!    refused. All other options override a defaults file.

use crate::error::{MkfsError, usage};
use crate::options::Options;

/// Maximum length of a file in bytes; real ones have a few hundred.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Byte order mark, which some editors put at the start of UTF-8 files.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// One option in a file.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    number: usize,
    section: &'a str,
    name: &'a str,
    value: &'a str,
}

impl Options {
    /// Applies the options of a file with the content `text`; errors call the file `name`.
    ///
    /// # Errors
    /// For a line that is no section, option or comment, for an unknown section or option, and for
    /// everything that [`Options::apply`] refuses.
    pub fn apply_file(&mut self, name: &str, text: &str) -> Result<(), MkfsError> {
        for line in lines(name, text)? {
            let at = |error: MkfsError| match error {
                MkfsError::Usage(why) => {
                    MkfsError::Usage(format!("{name}: line {}: {why}", line.number))
                }
                other => other,
            };
            let letter = letter(&line).map_err(at)?;
            self.apply_one(letter, &line.name.to_ascii_lowercase(), line.value).map_err(at)?;
        }
        Ok(())
    }
}

fn letter(line: &Line<'_>) -> Result<char, MkfsError> {
    match line.section.to_ascii_lowercase().as_str() {
        "block" => Ok('b'),
        "data" => Ok('d'),
        "inode" => Ok('i'),
        "log" => Ok('l'),
        "metadata" => Ok('m'),
        "naming" => Ok('n'),
        "sector" => Ok('s'),
        "realtime" => Err(MkfsError::Unsupported {
            what: "the section [realtime] of an option file",
            why: "volumes are made without a realtime device",
        }),
        "proto" => Ok('p'),
        _ => usage(format!("invalid option: [{}]: {}={}", line.section, line.name, line.value)),
    }
}

fn lines<'a>(name: &str, text: &'a str) -> Result<Vec<Line<'a>>, MkfsError> {
    let mut section = "";
    let mut found = Vec::new();
    for (number, raw) in text.trim_start_matches(BYTE_ORDER_MARK).lines().enumerate() {
        let line = without_comment(raw).trim();
        let number = number + 1;
        if line.is_empty() {
            continue;
        }
        if let Some(head) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            section = head.0.trim();
        } else if let Some((key, value)) = line.split_once(['=', ':']) {
            found.push(Line { number, section, name: key.trim(), value: value.trim() });
        } else {
            return usage(format!("{name}: line {number}: unrecognised: {line}"));
        }
    }
    Ok(found)
}

fn without_comment(line: &str) -> &str {
    if line.trim_start().starts_with(['#', ';']) {
        return "";
    }
    let end = line.match_indices(';').find(|(at, _)| line[..*at].ends_with(char::is_whitespace));
    end.map_or(line, |(at, _)| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Options, MkfsError> {
        let mut options = Options::default();
        options.apply_file("f", text)?;
        Ok(options)
    }

    #[test]
    fn sections_map_to_option_letters() {
        let got = options(
            "\u{feff}# all\n[Block]\nsize=1k\n[sector]\nsize = 1k\n[naming]\nsize : 8k ; wide\n\
             [data]\nagcount=3\n[log]\nsize=70m\n[inode]\n  sparse=0\n[metadata]\nRMAPBT=\n\
             [proto]\nfile=/a,b\natime=0\n",
        );
        let mut want = Options::default();
        for (letter, text) in [
            ('b', "size=1k"),
            ('s', "size=1k"),
            ('n', "size=8k"),
            ('d', "agcount=3"),
            ('l', "size=70m"),
            ('i', "sparse=0"),
            ('m', "rmapbt=1"),
        ] {
            want.apply(letter, text).unwrap();
        }
        (want.population.file, want.population.atime) = (Some("/a,b".into()), Some(false));
        assert_eq!(got.unwrap(), want);
    }

    #[test]
    fn errors_name_file_and_line() {
        for (text, said) in [
            ("[metadata]\nrmapbt\n", "f: line 2: unrecognised: rmapbt"),
            ("[metadata]\nfoo=1\n", "f: line 2: unknown option -m foo=1"),
            ("[meta]\n\nrmapbt=1\n", "f: line 3: invalid option: [meta]: rmapbt=1"),
            ("rmapbt=1\n", "f: line 1: invalid option: []: rmapbt=1"),
            ("[metadata\nrmapbt=1\n", "f: line 1: unrecognised: [metadata"),
            ("[metadata]\nrmapbt=1\nrmapbt=0\n", "f: line 3: -m rmapbt option respecified"),
            ("[metadata]\nrmapbt=0,reflink=0\n", "f: line 2: Invalid value 0,reflink=0"),
            ("[metadata]\nrmapbt=1 # on\n", "f: line 2: Invalid value 1 # on"),
            ("[proto]\nsize=1\n", "f: line 2: unknown option -p size=1"),
            ("[proto]\nfile=a\nfile=b\n", "f: line 3: -p file option respecified"),
            ("[realtime]\nsize=1g\n", "[realtime] of an option file is not supported"),
        ] {
            let error = options(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
