//! Commands that read: the output of `ls`, `stat`, `cat`, `find` and `xattr get` equals the real
//! tools'.

use crate::fixture::Fixture;

/// Removes the sizes of directories, which depend on the file system.
fn without_sizes_of_directories(text: &str, column: usize) -> String {
    let line = |line: &str| {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let dir = cells.first().is_some_and(|c| c.starts_with('d') || c.contains("drw"));
        let keep =
            |(at, cell): (usize, &&str)| if dir && at == column { "-" } else { cell }.to_owned();
        cells.iter().enumerate().map(keep).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn ls_output_equals_that_of_gnu_ls() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    for options in [
        "",
        "-a",
        "-A",
        "-1",
        "-r",
        "-t",
        "-tr",
        "-S",
        "-Sr",
        "-R",
        "-aR",
        "-d",
        "-m",
        "-x",
        "-C",
        "-Cw",
        "-F",
        "-p",
        "-pR",
        "-CF",
        "--group-directories-first",
        "-ut",
        "-L",
        "-U1d",
    ] {
        let options = options.trim_end_matches('w');
        let real = fixture.sh(&format!("cd t; ls {options} ."));
        let args: Vec<&str> = ["ls"].into_iter().chain(options.split_whitespace()).collect();
        let mine = fixture.uxfs(&[&args[..], &["a.img:/t"]].concat());
        let mine = mine.out.replace("a.img:/t", ".");
        // Directories' sizes differ, so compare the order by size for files only.
        if options.contains('S') {
            let files = |text: &str| -> Vec<String> {
                let dirs = ["dir", "empty", "many"];
                text.lines().filter(|l| !dirs.contains(l)).map(str::to_owned).collect()
            };
            assert_eq!(files(&mine), files(&real), "ls {options}");
            continue;
        }
        assert_eq!(mine, real, "ls {options}");
    }
}

#[test]
fn ls_long_output_equals_that_of_gnu_ls() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    for options in [
        "-l",
        "-la",
        "-ln",
        "-lA",
        "-lg",
        "-lo",
        "-lG",
        "-lF",
        "-lh",
        "--full-time",
        "-lu",
        "-l --time-style=long-iso",
        "-l --time-style=iso",
        "-l --time-style=+%s",
        "-ld",
        "-lrt",
    ] {
        let real = fixture.sh(&format!("cd t; ls {options} . | grep -v '^total'"));
        let args: Vec<&str> = ["ls"].into_iter().chain(options.split_whitespace()).collect();
        let mine = fixture.uxfs(&[&args[..], &["a.img:/t"]].concat()).good();
        let mine: String =
            mine.lines().filter(|l| !l.starts_with("total")).map(|l| format!("{l}\n")).collect();
        let mine = mine.replace("a.img:/t", ".");
        // The owner's or the group's column may be missing before the size's.
        let column =
            if options.contains(['g', 'o', 'G']) && !options.contains("long") { 3 } else { 4 };
        let column = if options.contains("iso") || options.contains('+') { 4 } else { column };
        // In the image, `..` of the tree is another directory.
        let keep = |text: &str| -> Vec<String> {
            let flat = without_sizes_of_directories(text, column);
            flat.lines()
                .filter(|l| !l.ends_with(" ..") && !l.ends_with(" ../"))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(keep(&mine), keep(&real), "ls {options}");
    }
}

#[test]
fn ls_aligns_as_ls_does() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir t; cd t; printf x >a; head -c 12345 /dev/zero >longer; mkfifo f; ln -s a l");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    for options in ["-l", "-lh", "-ln", "-lo", "-s", "-1s", "-ls"] {
        let real = fixture.sh(&format!("cd t; ls {options}"));
        let mine = fixture.uxfs(&["ls", options, "a.img:/t"]).good();
        assert_eq!(mine, real, "ls {options}");
    }
}

#[test]
fn ls_shows_devices_lists_and_colours() {
    let fixture = Fixture::with_image(&[]);
    fixture.uxfs(&["cp", "/dev/null", "a.img:/copied-content"]).good();
    fixture.sh("printf x >x; setfacl -m u:1234:r x");
    fixture.uxfs(&["cp", "-p", "x", "a.img:/x"]).good();
    let out = fixture.uxfs(&["ls", "-ln", "a.img:/x"]).good();
    assert!(out.starts_with("-rw-r--r--+ 1 "), "{out}");
    fixture.uxfs(&["mkdir", "a.img:/d"]).good();
    let out = fixture.uxfs(&["ls", "--color=always", "a.img"]).good();
    assert!(out.contains("\\x1b[01;34md\\x1b[0m"), "{out}");
}

#[test]
fn several_operands_and_failures() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    let ran = fixture.uxfs(&["ls", "a.img:/none", "a.img:/t/empty", "a.img:/t/file"]);
    assert_eq!(ran.code, 2);
    assert_eq!(ran.err, "uxfs: ls: a.img:/none: no such file or directory\n");
    assert_eq!(ran.out, "a.img:/t/file\n\na.img:/t/empty:\n");
}

#[test]
fn find_output_equals_that_of_gnu_find() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    for expression in [
        "",
        "-type f",
        "-type l",
        "-type d,l",
        "-name 'a-*1'",
        "-iname 'FILE*'",
        "-path '*/many/*9'",
        "! -type f",
        "-not -name 'a*' -type f",
        "-type f -size +100k",
        "-type f -size -2",
        "-size 5c",
        "-empty",
        "-perm 4755",
        "-perm -1000",
        "-perm /6000",
        "-perm -u+x,g+x",
        "-links 2",
        "-links +2 -type d",
        "-mindepth 1 -maxdepth 1",
        "-maxdepth 0",
        "-depth",
        "-newer t/many",
        "-name dir -prune -o -print",
        "\\( -name file -o -name hard \\) -print",
        "-lname 'no*'",
        "-type f -a \\( -name '*5' -o -size +1M \\)",
        "-mtime +300",
        "-mtime -300 -type f",
        "-mmin -600 -type f",
        "-uid +0 -o -uid 0",
        "-nouser",
        "-name file -printf '%f|%h|%P|%p|%H|%d\\n'",
        "-maxdepth 1 -printf '%M %m %n %y %Y %l\\n'",
        "-type f -printf '%TY-%Tm-%Td %TH:%TM:%TS %T+ %Tj %Ta\\n'",
        "-type f -printf '%10s|%-10s|%u|%g|%U|%G\\n'",
        "-type f -printf '%t|%A@|%%|\\101\\t\\n'",
        "-name 'with*' -print0",
        "-name 'quote*' -ls",
    ] {
        let exe = env!("CARGO_BIN_EXE_uxfs");
        let mine_script = format!("{exe} find a.img:/t {expression}")
            .replace("-newer t/many", "-newer a.img:/t/many");
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let real = fixture.sh(&format!("find t {expression}"));
        let mine = fixture.sh(&mine_script).replace("a.img:/t", "t");
        if expression.ends_with("-ls") {
            // Inode numbers and space depend on the file system.
            let tail = |text: String| text.split_whitespace().skip(2).collect::<Vec<_>>().join(" ");
            assert_eq!(tail(mine), tail(real), "find {expression}");
            continue;
        }
        assert_eq!(sorted(mine), sorted(real), "find {expression}");
    }
}

#[test]
fn find_deletes_and_refuses_nonsense() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    fixture.uxfs(&["find", "a.img:/t", "-name", "a-rather*", "-delete"]).good();
    fixture.uxfs(&["find", "a.img:/t/many", "-empty", "-delete"]).good();
    assert!(fixture.uxfs(&["ls", "a.img:/t/many"]).bad(2).contains("no such file"));
    for nonsense in
        [&["-frobnicate"][..], &["-name"], &["("], &["-size", "x"], &["-type", "q"], &[")"]]
    {
        fixture.uxfs(&[&["find", "a.img:/"], nonsense].concat()).bad(1);
    }
    fixture.check("a.img");
}

#[test]
fn stat_output_equals_that_of_gnu_stat() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    for name in ["file", "link", "sparse", "dir/big", "with space", "fifo", "empty-file"] {
        let format =
            "%a %A %f %F %g %G %h %n %s %t %T %u %U %x %X %y %Y %.9Y %N %%|%8s|%-8s|%08s|%04a";
        let real = fixture.sh(&format!("cd t; stat -c '{format}' '{name}'"));
        let mine = fixture.uxfs(&["stat", "-c", format, &format!("a.img:/t/{name}")]).good();
        assert_eq!(mine.replace("a.img:/t/", ""), real, "{name}");
        // In the long format: device, inode, space, change time and birth time differ in the image.
        let lines = |text: String| -> Vec<String> {
            let own = ["Device:", "Change:", " Birth:", "Blocks:"];
            let text = text.replace("a.img:/t/", "");
            text.lines().filter(|l| !own.iter().any(|o| l.contains(o))).map(str::to_owned).collect()
        };
        let real = fixture.sh(&format!("cd t; stat '{name}'"));
        let mine = fixture.uxfs(&["stat", &format!("a.img:/t/{name}")]).good();
        assert_eq!(lines(mine), lines(real), "{name}");
    }
    fixture.uxfs(&["stat", "a.img:/none"]).bad(1);
}

#[test]
fn attributes_print_as_getfattr_prints_them() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    for options in ["-d", "-d -e hex", "-d -e base64", "-d -e text", "-n user.note"] {
        let real = fixture.sh(&format!("cd t; getfattr {options} file"));
        let args: Vec<&str> =
            ["xattr", "get"].into_iter().chain(options.split_whitespace()).collect();
        let mine = fixture.uxfs(&[&args[..], &["a.img:/t/file"]].concat()).good();
        assert_eq!(mine.replace("a.img:/t/", ""), real, "{options}");
    }
    assert_eq!(
        fixture.uxfs(&["xattr", "get", "--only-values", "-n", "user.note", "a.img:/t/file"]).good(),
        "text"
    );
    let listed = fixture.uxfs(&["xattr", "list", "a.img:/t/file"]).good();
    assert_eq!(listed, "# file: a.img:/t/file\nuser.bin\nuser.note\n\n");
    fixture.uxfs(&["xattr", "get", "-n", "user.none", "a.img:/t/file"]).bad(1);
}

#[test]
fn documents_are_json() {
    let fixture = Fixture::with_image(&["-L", "label"]);
    fixture.tree_in_image();
    for args in [
        &["ls", "--json", "a.img:/t"][..],
        &["ls", "--json", "-R", "a.img:/"],
        &["stat", "--json", "a.img:/t/file", "a.img:/t/link"],
        &["find", "--json", "a.img:/t", "-type", "f"],
        &["info", "--json", "a.img"],
        &["label", "--json", "a.img"],
        &["xattr", "get", "--json", "a.img:/t/file"],
        &["xattr", "list", "--json", "a.img:/t/file"],
    ] {
        let out = fixture.uxfs(args).good();
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(value["version"], 1, "{args:?}");
        assert!(value["schema"].as_str().unwrap().starts_with("uxfs."), "{args:?}");
    }
    let out = fixture.uxfs(&["find", "--json", "a.img:/t", "-name", "bad*"]).good();
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["files"][0]["path_base64"], "YS5pbWc6L3QvYmFk/wo=");
    let err = fixture.uxfs(&["stat", "--json", "a.img:/none"]).bad(1);
    let value: serde_json::Value = serde_json::from_str(&err).unwrap();
    assert_eq!(value["error"]["kind"], "not-found");
    assert_eq!(value["error"]["where"], "a.img:/none");
}

#[test]
fn cat_writes_content_and_holes() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    fixture
        .sh(&format!("{} cat a.img:/t/sparse a.img:/t/dir/big >got", env!("CARGO_BIN_EXE_uxfs")));
    fixture.sh("cat t/sparse t/dir/big | cmp - got");
    fixture.uxfs(&["cat", "a.img:/t"]).bad(1);
}

/// Lines are the parts of the whole documents, with a head of their own.
#[test]
fn json_lines_are_the_parts_of_the_documents() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir -p t/sub; echo a >t/a; ln -s a t/sub/link; touch \"t/$(printf 'n\\377')\"");
    fixture.uxfs(&["cp", "-r", "t", "a.img:/"]).good();
    let parsed = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    for (command, args, key, schema) in [
        ("find", &["a.img:/t", "-mindepth", "1"][..], "files", "uxfs.file"),
        ("ls", &["-R", "a.img:/t", "a.img:/t/a"], "directories", "uxfs.directory"),
    ] {
        let ran = |option: &str| fixture.uxfs(&[&[command, option], args].concat()).good();
        let mut whole = parsed(&ran("--json"));
        let parts = whole[0][key].as_array_mut().unwrap();
        assert!(parts.len() > 2, "{parts:?}");
        for part in &mut *parts {
            let map = part.as_object_mut().unwrap();
            map.insert("schema".into(), schema.into());
            map.insert("version".into(), 1.into());
        }
        let lines = ran("--json-lines");
        assert!(lines.starts_with(&format!("{{\"schema\":\"{schema}\",\"version\":1,")), "{lines}");
        assert_eq!(parsed(&lines), *parts);
        fixture.uxfs(&[&[command, "--json", "--json-lines"], args].concat()).bad(2);
    }
    let missing = fixture.uxfs(&["find", "--json-lines", "a.img:/none"]).bad(1);
    assert!(missing.contains("\"kind\":\"not-found\""), "{missing}");
}
