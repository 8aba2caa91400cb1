//! The grammar, and every mistake that it knows.

use std::io::Cursor;

use uxfs_testkit::Rng;

use super::ProtoOptions;
use super::parser::{Node, Parser, Spec};
use super::words::WORD_MAX;
use crate::entry::Time;

fn parser(text: Vec<u8>, slashes_are_spaces: bool) -> Parser<Cursor<Vec<u8>>> {
    let options = ProtoOptions { slashes_are_spaces, ..ProtoOptions::at(Time::default()) };
    Parser::new(Cursor::new(text), "p".into(), options)
}

/// The files, and the warning if there is one.
fn parse_all(text: &[u8], slashes_are_spaces: bool) -> Result<(Vec<Node>, Option<String>), String> {
    let mut parser = parser(text.to_vec(), slashes_are_spaces);
    let mut nodes = Vec::new();
    while let Some(node) = parser.next().map_err(|error| error.to_string())? {
        nodes.push(node);
    }
    // Behind the end there is nothing more.
    assert!(parser.next().is_ok_and(|node| node.is_none()));
    Ok((nodes, parser.cut_short()))
}

fn parse(text: &[u8], slashes_are_spaces: bool) -> Result<Vec<Node>, String> {
    let (nodes, warning) = parse_all(text, slashes_are_spaces)?;
    assert_eq!(warning, None);
    Ok(nodes)
}

fn node(path: &str, spec: Spec, mode: u32, ids: (u32, u32), line: u64) -> Node {
    Node { path: path.into(), spec, mode, uid: ids.0, gid: ids.1, line }
}

const WHOLE: &str = "\
/stand/diskboot
4872 110
d--777 3 1
: a comment, with words $ d--777
usr\td--755 0 4294967294
 sh -ug755 3 1 /bin/sh
 deep d--700 3 1 $
 res r--600 0x3 01 64k
 $
b0 b--644 3 1 4095 262143
c0 c--644 3 1 0 0
fifo p--644 3 1 slink l--777 3 1 /a/symbolic/link : and another comment
a:b ---000
 7 : the owner
 8 empty
$
what follows is ignored
";

#[test]
fn every_type_is_parsed() {
    let ids = (3, 1);
    let wanted = [
        node("", Spec::Dir, 0o777, ids, 3),
        node("usr", Spec::Dir, 0o755, (0, 4_294_967_294), 5),
        node("usr/sh", Spec::File(b"/bin/sh".to_vec()), 0o6755, ids, 6),
        node("usr/deep", Spec::Dir, 0o700, ids, 7),
        node("usr/res", Spec::Reserved(65536), 0o600, ids, 8),
        node("b0", Spec::Block(4095, 262_143), 0o644, ids, 10),
        node("c0", Spec::Char(0, 0), 0o644, ids, 11),
        node("fifo", Spec::Fifo, 0o644, ids, 12),
        node("slink", Spec::Symlink(b"/a/symbolic/link".to_vec()), 0o777, ids, 12),
        node("a:b", Spec::File(b"empty".to_vec()), 0, (7, 8), 13),
    ];
    assert_eq!(parse(WHOLE.as_bytes(), false).unwrap(), wanted);
}

/// A root directory with this in it, from line 4 on.
fn root(content: &str) -> Vec<u8> {
    format!("x\n0 0\nd--755 0 0\n{content}").into_bytes()
}

#[test]
fn slashes_mean_spaces_in_names_only() {
    let text = root("a/b d--755 0 0 /x/ ---644 0 0 /etc/x\n$ $");
    let nodes = parse(&text, true).unwrap();
    assert_eq!(nodes[1].path, b"a b");
    assert_eq!(
        (&nodes[2].path[..], &nodes[2].spec),
        (&b"a b/ x "[..], &Spec::File(b"/etc/x".to_vec()))
    );
    let error = parse(&text, false).unwrap_err();
    assert!(
        error.contains("p, line 4: the name 'a/b' has a slash")
            && error.contains("slashes_are_spaces=1")
    );
    // The same name in two spellings.
    let error = parse(&root("a/b p--644 0 0\na/b p--644 0 0\n$"), true).unwrap_err();
    assert!(error.contains("p, line 5: 'a b' is there already"), "{error}");
}

#[test]
fn each_mistake_names_its_line() {
    let long_name = format!("{} p--644 0 0\n$", "n".repeat(256));
    let long_word = format!("x p--644 0 0\n{}", "w".repeat(WORD_MAX + 1));
    let long_target = format!("x l--777 0 0 {}\n$", "t".repeat(1024));
    let cases: &[(&str, &str)] = &[
        ("a\n", "line 5: the file ends where a mode is due"),
        ("a p--644\n", "line 5: the file ends where an owner is due"),
        ("a p--644 0\n", "line 5: the file ends where a group is due"),
        ("a ---644 0 0\n", "line 5: the file ends where the path of the content is due"),
        ("a l--777 0 0\n", "line 5: the file ends where the target of a symbolic link is due"),
        ("a r--644 0 0\n", "line 5: the file ends where a size is due"),
        ("a c--644 0 0 1\n", "line 5: the file ends where a minor number is due"),
        ("a s--644 0 0\n$", "line 4: 's--644' is not a mode such as d--755 or -ug755: the first"),
        (
            "\na px-644 0 0\n$",
            "line 5: 'px-644' is not a mode such as d--755 or -ug755: the second",
        ),
        ("a p-x644 0 0\n$", "line 4: 'p-x644' is not a mode such as d--755 or -ug755: the third"),
        ("a p--684 0 0\n$", "the last three characters are octal digits"),
        ("a p--64 0 0\n$", "it has to have six characters"),
        ("a p--6444 0 0\n$", "it has to have six characters"),
        ("a $\n$", "line 4: '$' is not a mode"),
        ("a p--644\nme 0\n$", "line 5: 'me', where an owner is due, is not a number that fits"),
        ("a p--644 0 -1\n$", "line 4: '-1', where a group is due, is not a number that fits"),
        ("a p--644 4294967296 0\n$", "is not a number that fits"),
        ("a p--644 4294967295 0\n$", "line 4: an owner of 4294967295: Linux has them up to"),
        ("a p--644 08 0\n$", "'08', where an owner is due, is not a number that fits"),
        ("a p--644 0x+1 0\n$", "'0x+1', where an owner is due, is not a number that fits"),
        ("a p--644 0x 0\n$", "'0x', where an owner is due, is not a number that fits"),
        ("a r--644 0 0\n64x\n$", "line 5: '64x' is not a size that a file can have"),
        ("a r--644 0 0 k\n$", "line 4: 'k' is not a size that a file can have"),
        ("a r--644 0 0 9223372036854775808\n$", "line 4: '9223372036854775808' is not a size"),
        ("a r--644 0 0 16e\n$", "line 4: '16e' is not a size that a file can have"),
        ("a p--644 0 0\r\n$", "line 4: '0\\r', where a group is due"),
        ("a b--644 0 0 4096 0\n$", "line 4: device 4096, 0: the last possible is 4095, 262143"),
        ("a b--644 0 0\n0 262144\n$", "line 5: device 0, 262144: the last possible is"),
        (". d--755 0 0\n$ $", "line 4: '.' is no name for a file"),
        (".. d--755 0 0\n$ $", "line 4: '..' is no name for a file"),
        ("a/b p--644 0 0\n$", "line 4: the name 'a/b' has a slash"),
        ("a p--644 0 0\n\na p--644 0 0\n$", "line 6: 'a' is there already: a name occurs twice"),
        ("d d--755 0 0\na p--644 0 0\na p--644 0 0\n$ $", "line 6: 'd/a' is there already"),
        ("a\0b p--644 0 0\n$", "line 4: a NUL byte"),
        (&long_name, "line 4: a name of 256 bytes: at most 255 are possible"),
        (&long_word, "line 5: a word of more than 16 KiB"),
        (&long_target, "line 4: a target of 1024 bytes: at most 1023 are possible"),
    ];
    for (content, said) in cases {
        let error = parse(&root(content), false).unwrap_err();
        assert!(error.starts_with("p, line ") && error.contains(said), "{content:?}: {error}");
    }
    for (text, said) in [
        ("", "p, line 1: the file ends where the name of a boot program, which is ignored, is due"),
        ("x\n: y\n", "p, line 3: the file ends where the number of blocks"),
        ("x 1\n", "p, line 2: the file ends where the number of inodes"),
        ("x\ny 1\n", "p, line 2: 'y', where the number of blocks"),
        ("x\n0 y\n", "p, line 2: 'y', where the number of inodes"),
        ("x 0 0", "p, line 1: the file ends where a mode is due"),
        (
            "x 0 0\n---644 0 0 /x",
            "p, line 2: the first file, which is the root, is not a directory",
        ),
    ] {
        let error = parse(text.as_bytes(), false).unwrap_err();
        assert!(error.contains(said), "{text:?}: {error}");
    }
}

#[test]
fn directories_inherit_the_set_group_id_bit() {
    let text = root("s d-g755 0 0 d d--700 0 0 e du-711 0 0 $ $ f p--600 0 0 $ o d--755 0 0 $ $");
    let modes: Vec<_> = parse(&text, false).unwrap().into_iter().map(|node| node.mode).collect();
    assert_eq!(modes, [0o755, 0o2755, 0o2700, 0o6711, 0o600, 0o755]);
}

#[test]
fn sizes_have_units() {
    for (text, wanted) in [
        ("0", 0),
        ("8s", 4096),
        ("16b", 65536),
        ("2K", 2048),
        ("1m", 1 << 20),
        ("3g", 3 << 30),
        ("1t", 1 << 40),
        ("1p", 1 << 50),
        ("7e", 7 << 60),
        ("0x10k", 16384),
        ("9223372036854775807", i64::MAX as u64),
    ] {
        let nodes = parse(&root(&format!("r r--600 0 0 {text} $")), false).unwrap();
        assert_eq!(nodes[1].spec, Spec::Reserved(wanted), "{text}");
    }
}

#[test]
fn the_end_of_the_file_ends_directories_with_a_warning() {
    for (content, files, said) in [
        ("", 1, "p, line 4: the file ends in directory the root, which begins in line 3"),
        (
            "d d--755 0 0\nx p--644 0 0",
            3,
            "line 5: the file ends in directory 'd', which begins in line 4",
        ),
        ("d d--755 0 0\n$\n", 2, "line 6: the file ends in directory the root"),
    ] {
        let (nodes, warning) = parse_all(&root(content), false).unwrap();
        assert_eq!(nodes.len(), files);
        assert!(warning.as_ref().unwrap().contains(said), "{warning:?}");
    }
}

#[test]
fn deep_directories_need_no_stack() {
    let deep = 30_000;
    let text = [root(&"d d--755 0 0 ".repeat(deep)), b"$ ".repeat(deep + 1)].concat();
    let mut deep_parser = parser(text, false);
    let count = std::iter::from_fn(|| deep_parser.next().unwrap()).count();
    assert_eq!(count, deep + 1);
    let text = root(&"dd d--755 0 0\n".repeat(deep));
    let mut too_deep = parser(text, false);
    let error = std::iter::from_fn(|| too_deep.next().err().map_or(Some(None), |e| Some(Some(e))));
    let error = error.flatten().next().unwrap().to_string();
    assert!(error.contains("the path is longer than 64 KiB"), "{error}");
}

/// Any text is either a tree or refused with a line: no panic, no loop.
#[test]
fn no_text_is_too_strange() {
    let rng = &mut Rng::new(7);
    let words: [&[u8]; 16] = [
        b"$",
        b":",
        b"\n",
        b" ",
        b"d--755",
        b"---644",
        b"r--600",
        b"c--600",
        b"l--777",
        b"0",
        b"1",
        b"18446744073709551616",
        b"a/b",
        b"name",
        b"\xff\0",
        b"..",
    ];
    let (mut trees, mut refused) = (0, 0);
    for round in 0..20_000 {
        let mut text = if round % 2 == 0 { root("") } else { Vec::new() };
        for _ in 0..rng.below(12) {
            text.extend_from_slice(words[rng.below(words.len() as u64) as usize]);
            text.push(b' ');
        }
        match parse_all(&text, round % 3 == 0) {
            Ok(_) => trees += 1,
            Err(error) => {
                assert!(error.starts_with("p, line "), "{error}");
                refused += 1;
            }
        }
    }
    assert!(trees > 100 && refused > 1000, "{trees} trees, {refused} refused");
}
