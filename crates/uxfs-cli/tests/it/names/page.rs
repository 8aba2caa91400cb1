//! docs/XFSPROGS.md keeps its word: what its table calls refused is refused, by its name and before anything has
//! changed, and so is every option that the table does not name.

use std::fs;
use std::path::Path;

use crate::fixture::Fixture;

/// A volume of the least length, for many comparisons.
const MADE: &str = "file,name=clean,size=24m";

/// A row of the table.
struct Row {
    program: String,
    done: Vec<char>,
    /// Options, or an option and a word of its value.
    refused: Vec<(char, Option<String>)>,
}

/// The rows of the table of programs.
fn table() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/XFSPROGS.md");
    let page = fs::read_to_string(path).unwrap();
    let lines = page.lines().skip_while(|line| *line != "| program | done | refused |").skip(2);
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, program, done, refused, _] = cells[..] else { panic!("not a row: {line}") };
        Row {
            program: program.trim_matches('`').to_owned(),
            done: options(done).into_iter().map(|(letter, _)| letter).collect(),
            refused: options(refused),
        }
    };
    lines.take_while(|line| line.starts_with('|')).map(row).collect()
}

/// The options of a cell, with the word that stands behind one. What is in brackets are conditions.
fn options(cell: &str) -> Vec<(char, Option<String>)> {
    let mut cell = cell.to_owned();
    while let Some((from, to)) = cell.find('(').zip(cell.find(')')) {
        cell.replace_range(from..=to, "");
    }
    let mut found: Vec<(char, Option<String>)> = Vec::new();
    for code in cell.split('`').skip(1).step_by(2) {
        let mut last = None;
        for word in code.split(' ') {
            match word.strip_prefix('-').map(|letter| letter.parse::<char>()) {
                Some(Ok(letter)) => {
                    found.push((letter, None));
                    last = Some(found.len() - 1);
                }
                // Part of a command of uxfs.
                Some(Err(_)) => last = None,
                None => {
                    if let Some(at) = last {
                        found[at].1 = Some(word.to_owned());
                    }
                }
            }
        }
    }
    found
}

/// The words that would do something if they were alone: none is refused, and most would change a file.
fn words(program: &str) -> &'static [&'static str] {
    match program {
        "mkfs.xfs" => &["-q", "-f", "--unsupported", "clean"],
        // A volume of one group has no copy of its superblock to compare with.
        "xfs_repair" => &["-o", "force_geometry", "-n", "clean"],
        "xfs_info" | "xfs_growfs" => &["clean"],
        "xfs_admin" => &["-L", "changed", "clean"],
        "xfs_freeze" => &["-f", "dir"],
        "xfs_metadump" => &["clean", "made"],
        "xfs_mdrestore" => &["dump", "made"],
        "xfsrestore" => &["-t", "-f", "xfsdump"],
        "xfs_copy" => &["clean", "made"],
        other => panic!("{other} is new on the page: say here how it is called"),
    }
}

/// A value that the option of xfsprogs takes, if it takes one.
fn value(program: &str, letter: char) -> Option<&'static str> {
    Some(match (program, letter) {
        ("mkfs.xfs", 'r') => "extsize=64k",
        ("xfs_repair", 'c') => "bigtime=1",
        ("xfs_admin", 'c') => "1",
        ("xfs_admin", 'C') => "file",
        ("xfs_growfs", 'e' | 'L' | 'R') => "4096",
        ("xfs_growfs", 'm') => "25",
        ("xfs_repair" | "xfs_admin" | "xfs_metadump" | "xfs_mdrestore", 'l' | 'r') => "dev",
        ("xfsrestore", 'b' | 'p' | 'w' | 'Y') => "1",
        ("xfsrestore", 'a' | 'c' | 'n' | 's' | 'L' | 'S' | 'X') => "word",
        _ => return None,
    })
}

/// Does an error name the option?
fn names(said: &str, letter: char, word: Option<&str>) -> bool {
    let option = word.map_or(format!("-{letter}"), |word| format!("-{letter} {word}"));
    let quoted = format!("-- '{letter}'");
    let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_ascii_alphanumeric());
    said.lines().filter(|line| !line.starts_with("Usage:")).any(|line| {
        let found = line.split_once(&option).is_some_and(|(_, rest)| is_end(rest));
        found || word.is_none() && line.contains(&quoted)
    })
}

/// The files of the directory and what they hold.
fn files(fixture: &Fixture) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(fixture.path("")).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    let mut all: Vec<_> = files
        .map(|file| {
            let content = fs::read(file.path()).unwrap();
            (file.file_name().into_string().unwrap(), content)
        })
        .collect();
    all.sort();
    all
}

/// What is wrong with how a program treats an option that it must refuse.
fn wrong(
    fixture: &Fixture,
    program: &str,
    letter: char,
    word: Option<&str>,
    before: &[(String, Vec<u8>)],
) -> Option<String> {
    let option = format!("-{letter}");
    let mut args = vec!["as", program, &option];
    args.extend(word.or(value(program, letter)));
    args.extend(words(program));
    let ran = fixture.uxfs(&args);
    let failed = (1..=16).contains(&ran.code);
    if !failed || !names(&ran.err, letter, word) {
        return Some(format!("{args:?} is not refused by its name: {ran:?}"));
    }
    // A cheap look at each, and one at the bytes after all.
    let left = fs::read_dir(fixture.path("")).unwrap().count();
    (left != before.len() + 1).then(|| format!("{args:?} makes or removes files"))
}

#[test]
fn what_the_page_calls_refused_is_refused_by_name() {
    let fixture = Fixture::new();
    fixture.uxfs(&["as", "mkfs.xfs", "-q", "--unsupported", "-d", MADE]).good();
    fixture.uxfs(&["as", "xfs_metadump", "clean", "dump"]).good();
    // There is room for xfs_growfs.
    fixture.sh("truncate -s 32m clean; mkdir dir; echo text >xfsdump");
    let before = files(&fixture);
    let rows = table();
    let help = fixture.uxfs(&["as", "--help"]).good();
    for row in &rows {
        assert!(help.contains(&row.program), "{} is not in {help}", row.program);
    }
    let (mut found, mut listed) = (Vec::new(), 0);
    // fsck.xfs takes every option, as that of xfsprogs does.
    for row in rows.iter().filter(|row| row.program != "fsck.xfs") {
        let program = row.program.as_str();
        for (letter, word) in &row.refused {
            listed += 1;
            found.extend(wrong(&fixture, program, *letter, word.as_deref(), &before));
        }
        let is_named = |letter: &char| {
            row.done.contains(letter) || row.refused.iter().any(|(other, _)| other == letter)
        };
        for letter in ('a'..='z').chain('A'..='Z').chain('0'..='9').filter(|c| !is_named(c)) {
            found.extend(wrong(&fixture, program, letter, None, &before));
        }
        if files(&fixture) != before {
            found.push(format!("{program} changes files although it refuses an option"));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(rows.len() == 11 && listed >= 24, "{} rows, {listed} options", rows.len());
    // Without a refused option each does something.
    for program in ["xfs_repair", "xfs_info", "xfs_admin", "xfs_metadump", "xfs_growfs"] {
        let ran = fixture.uxfs(&[&["as", program], words(program)].concat());
        assert_eq!(ran.code, 0, "{program}: {ran:?}");
    }
}
