//! Each rule of the grammar, with paths on both sides of it.

use uxfs_selinux::FileKind;

use crate::oracle::{KINDS, Policy, compare};

/// Compares the labels of these paths, for each type of file.
fn check(files: &[(&str, &str)], paths: &[&str]) {
    let policy = Policy::new(files);
    let queries: Vec<_> = paths
        .iter()
        .flat_map(|path| KINDS.map(|(_, kind)| (kind, path.as_bytes().to_vec())))
        .collect();
    compare(&policy.load(), &policy.file(), &queries);
}

#[test]
fn the_last_rule_decides_and_rules_without_meta_characters_come_last() {
    check(
        &[(
            "",
            "/a/b u:r:exact\n/a/.* u:r:any\n/a/b -- u:r:file\n/a/.? -d u:r:dir\n/a/c u:r:1\n/a/c u:r:2\n",
        )],
        &["/a", "/a/b", "/a/c", "/a/bc", "/ab"],
    );
    check(
        &[
            ("", "/a u:r:base\n/b u:r:b\n"),
            (".homedirs", "/a u:r:home\n"),
            (".local", "/a u:r:local\n/.* u:r:any\n"),
        ],
        &["/a", "/b", "/c"],
    );
    check(&[("", "/a u:r:base\n"), (".homedirs", "/a u:r:home\n")], &["/a"]);
    check(
        &[(
            "",
            r"/a/b\.c u:r:exact
/a/b\+ u:r:plus
/a/.* u:r:any
",
        )],
        &["/a/b.c", "/a/bxc", "/a/b+"],
    );
    // These are no meta characters.
    check(
        &[("", "/a/b] u:r:1\n/a/b} u:r:2\n/a/b, u:r:3\n/a/b-c u:r:4\n/a/.* u:r:any\n")],
        &["/a/b]", "/a/b}", "/a/b,", "/a/b-c"],
    );
}

#[test]
fn types_and_none() {
    let text = "/a/.* u:r:any\n/a/.*x -- u:r:file\n/a/.*x -d u:r:dir\n/a/.*x -l u:r:link\n\
                /a/.*x -c u:r:char\n/a/.*x -b u:r:block\n/a/.*x -p u:r:pipe\n/a/.*x -s u:r:sock\n\
                /a/n.* <<none>>\n/a/nd.* -d u:r:dir\n/a/m -d <<none>>\n";
    check(&[("", text)], &["/a/1", "/a/1x", "/a/n", "/a/nd", "/a/m", "/a/mx"]);
}

#[test]
fn lines() {
    let text = "# comment\n\n   /a\t \tu:r:t \t\n\t# more\n/b -- u:r:b #not a comment\n/c u:r:c\r\n/d u:r:d";
    check(&[("", text)], &["/a", "/b", "/c", "/d", "/e", "a"]);
}

#[test]
fn expressions_are_anchored_without_a_group() {
    check(&[("", "/foo|/bar u:r:x\n")], &["/foo", "/bar", "/foox", "/x/bar", "/x", "/barx"]);
    check(
        &[("", "/foo/a|/b u:r:x\n")],
        &["/foo/a", "/foo/b", "/foo/ax", "/foo/x/b", "/b", "/foo/c"],
    );
    check(
        &[(
            "",
            "/a/b u:r:x\n/c/.*z u:r:y\n/d(/.*)? u:r:d\n/e/[^/]+ u:r:e\n/f/(a|b)+ u:r:f\n/g/.+ u:r:g\n",
        )],
        &[
            "/a/b\n", "/a/b\n\n", "/c/1\n2z", "/c/z\n", "/c/z\n\n", "/d\n", "/d/\n", "/d\n/x",
            "/e/\n", "/e/a\n", "/e/a/b", "/f/ab", "/f/ab\n", "/g/\n", "/g/x",
        ],
    );
}

#[test]
fn the_first_name_is_matched_by_itself() {
    for rule in [
        "/usr/?",
        "/usr/?b",
        "/usr/*b",
        "/usr/(b)?",
        "/usr(/.*)?",
        "/usr/(.*)?",
        "/usr/.*",
        "/us.?/b",
        "/(usr)/b",
        "/us[r]/b",
        r"/us\.r/b",
        "/usr//b",
        "/usr/{2}b",
        "/us-r/b?",
    ] {
        check(
            &[("", &format!("{rule} u:r:x\n"))],
            &["/", "/usr", "/usrb", "/usr/b", "/us.r/b", "/us-r/b", "/usr/b/b", "/us"],
        );
    }
}

#[test]
fn pcre2s_dialect() {
    let rules = [
        "/a/(?i)b",
        "/a/[[:alpha:]]+",
        r"/a/\w+\d.?",
        "/a/(?=q)q.",
        r"/a/(z)\1",
        "/a/(?:x|y)z",
        "/a/x++y",
        r"/a/[\x80-\xff]+.?",
        r"/a/.\x41",
        "/a/[]x]y",
        "/a/[^]x]y",
        r"/a/[\]x]z",
        "/a/[[:digit:]x]w",
        "/a/x{2,3}v",
        "/a/x{2}?",
        "/a/.*?u",
        "/a/(a(b(c)?)?)?",
        r"/a/\(b\)\+",
        "/a/(?<!x)t",
        r"/a/[^/\.]+\.d/.*",
        "/a/..(?#comment)",
        r"/a/\Q.*\E.?",
        "/a/[a-c]*[^a-c]",
    ];
    let paths = [
        "/a/b",
        "/a/B",
        "/a/abc",
        "/a/ab1",
        "/a/qz",
        "/a/zz",
        "/a/xz",
        "/a/xxy",
        "/a/xxv",
        "/a/xxxxv",
        "/a/xx",
        "/a/uu",
        "/a/ab",
        "/a/(b)+",
        "/a/t",
        "/a/xt",
        "/a/q.d/f",
        "/a/q.e.d/f",
        "/a/.*",
        "/a/.*x",
        "/a/bc",
        "/a/1A",
        "/a/]y",
        "/a/xy",
        "/a/zy",
        "/a/]z",
        "/a/5w",
        "/a/:w",
        "/a/d",
        "/a/\u{e4}",
    ];
    for rule in rules {
        check(&[("", &format!("{rule} u:r:x\n"))], &paths);
    }
    let policy = Policy::new(&[("", "/a/. u:r:one\n/a/.. u:r:two\n")]);
    let queries = [&b"/a/\xe4"[..], b"/a/\xc3\xa4", b"/a/\xff\xfe\xfd"]
        .map(|path| (FileKind::File, path.to_vec()));
    assert_eq!(compare(&policy.load(), &policy.file(), &queries), 2);
}

#[test]
fn aliases() {
    let rules = "/.* u:r:any\n/ u:r:root\n/p/.* u:r:p\n/p u:r:ptop\n/q/.* u:r:q\n/usr/lib/.* u:r:lib\n/v u:r:v\n/p//z u:r:pz\n";
    let paths = [
        "/", "/x", "/x/f", "/x/y", "/x/y/f", "/x/y/z/f", "/xy/f", "/lib/f", "/lib", "/k/f", "/e/f",
        "/w", "/w/f", "/p/z", "/y/f",
    ];
    for subs in [
        "/x /p\n/x/y /q\n",
        "/x/y /q\n/x /p\n",
        "/x /q\n/x /p\n",
        "/x /\n/e /p/\n/w/ /p\n/ /v\n",
        "/x /x/y\n",
        "/x/y /x\n",
        "# c\n\n  /x   /p  ignored # more\nrel /p\n/k p\n/#x /p\n/e\t/p\n/lib /usr/lib\r\n\t/y /p",
    ] {
        check(&[("", rules), (".subs", subs)], &paths);
        check(&[("", rules), (".subs_dist", subs)], &paths);
        check(&[("", rules), (".subs", "/y /x\n/x /lib\n"), (".subs_dist", subs)], &paths);
        check(
            &[("", rules), (".subs", subs), (".subs_dist", "/p /q\n/q/y /p\n/lib /usr/lib\n")],
            &paths,
        );
    }
}

#[test]
fn paths_deeper_than_the_levels_that_are_kept() {
    let rules = "/.* u:r:any\n/a/.* u:r:a\n(/a)+/f u:r:f\n/p/.*/f u:r:p\n";
    let deep = |count: usize, name: &str| format!("{}/{name}", "/a".repeat(count));
    let paths: Vec<String> = [1, 255, 256, 257, 258, 300]
        .iter()
        .flat_map(|count| {
            [deep(*count, "f"), deep(*count, "g"), format!("/x{}", deep(*count, "f"))]
        })
        .collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    check(&[("", rules)], &paths);
    check(&[("", rules), (".subs", "/x /p\n")], &paths);
}
