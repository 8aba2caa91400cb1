//! Small commands, and the expansion of patterns: compared with coreutils and the shell on the same
//! tree.

use crate::fixture::Fixture;

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn touch_makes_files_and_sets_times_as_coreutils_do() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir h; touch -d '2001-02-03 04:05:06.5' h/a; ln -s a h/l");
    fixture.uxfs(&["touch", "a.img:/a", "a.img:/b"]).good();
    fixture.uxfs(&["touch", "-d", "2001-02-03 04:05:06.5", "a.img:/a"]).good();
    let times = |ran: String| ran.trim().to_owned();
    let ours = |file: &str, what: &str| {
        times(fixture.uxfs(&["stat", "-c", what, &format!("a.img:{file}")]).good())
    };
    assert_eq!(ours("/a", "%X.%Y"), times(fixture.sh("stat -c %X.%Y h/a")));
    // Only one of the times, another file's times, a stamp.
    fixture.uxfs(&["touch", "-m", "-d", "@1000000000", "a.img:/a"]).good();
    assert_eq!(ours("/a", "%Y"), "1000000000");
    assert_ne!(ours("/a", "%X"), "1000000000");
    fixture.uxfs(&["touch", "-r", "h/a", "a.img:/b"]).good();
    assert_eq!(ours("/b", "%y"), times(fixture.sh("stat -c %y h/a")));
    fixture.uxfs(&["touch", "-t", "202601020304.05", "a.img:/b"]).good();
    fixture.sh("touch -t 202601020304.05 h/a");
    assert_eq!(ours("/b", "%X %Y"), times(fixture.sh("stat -c '%X %Y' h/a")));
    // A link itself.
    fixture.uxfs(&["ln", "-s", "a", "a.img:/l"]).good();
    fixture.uxfs(&["touch", "-h", "-d", "@5", "a.img:/l"]).good();
    assert_eq!((ours("/l", "%Y"), ours("/a", "%Y")), ("5".into(), "1000000000".into()));
    // Nothing is created with -c, or if the path requires a directory.
    fixture.uxfs(&["touch", "-c", "a.img:/none"]).good();
    assert!(fixture.uxfs(&["touch", "a.img:/none/"]).bad(1).contains("/none/"));
    assert!(
        fixture.uxfs(&["touch", "-d", "yesterdayish", "a.img:/a"]).bad(1).contains("yesterdayish")
    );
    assert_eq!(lines(&fixture.uxfs(&["ls", "a.img:/"]).good()), ["a", "b", "l"]);
    fixture.check("a.img");
}

#[test]
fn readlink_follows_as_coreutils_do() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh(
        "mkdir -p t/d/e; touch t/d/e/f; ln -s d t/up; ln -s ../up/e t/d/back; ln -s loop t/loop; \
            ln -s /d/e/f t/abs",
    );
    fixture.sh(&format!(
        "{} cp -a t/* $(find t -maxdepth 1 -name '.h*') a.img:/",
        env!("CARGO_BIN_EXE_uxfs")
    ));
    let one = |args: &[&str]| fixture.uxfs(&[&["readlink"], args].concat());
    assert_eq!(one(&["a.img:/up"]).good(), "d\n");
    assert_eq!(one(&["-n", "a.img:/d/back"]).good(), "../up/e");
    assert_eq!(one(&["-f", "a.img:/up/back/f"]).good(), "a.img:/d/e/f\n");
    assert_eq!(one(&["-f", "a.img:/abs"]).good(), "a.img:/d/e/f\n");
    assert_eq!(one(&["-f", "a.img:/up/../d/./none"]).good(), "a.img:/d/none\n");
    assert_eq!(one(&["-f", "a.img:/"]).good(), "a.img:/\n");
    // As in coreutils, failures are silent without -v.
    let quiet = one(&["-e", "a.img:/up/none"]);
    assert_eq!((quiet.code, quiet.err.as_str()), (1, ""));
    assert!(one(&["-v", "a.img:/d"]).bad(1).contains("not a symbolic link"));
    assert!(one(&["-f", "-v", "a.img:/loop"]).bad(1).contains("/loop"));
}

#[test]
fn mknod_makes_devices_and_fifos() {
    let fixture = Fixture::with_image(&[]);
    fixture.uxfs(&["mknod", "a.img:/null", "c", "1", "3"]).good();
    fixture.uxfs(&["mknod", "-m", "600", "a.img:/disk", "b", "0x8", "010"]).good();
    fixture.uxfs(&["mknod", "a.img:/pipe", "p"]).good();
    let output =
        fixture.uxfs(&["find", "a.img:/", "-mindepth", "1", "-printf", "%y %m %f\\n"]).good();
    let mut output = lines(&output);
    output.sort_unstable();
    assert_eq!(output, ["b 600 disk", "c 644 null", "p 644 pipe"]);
    assert_eq!(fixture.uxfs(&["stat", "-c", "%t,%T", "a.img:/disk"]).good(), "8,8\n");
    fixture.uxfs(&["mknod", "a.img:/pipe2", "p", "1", "2"]).bad(1);
    fixture.uxfs(&["mknod", "a.img:/half", "c", "1"]).bad(1);
    fixture.uxfs(&["mknod", "a.img:/big", "c", "4096", "0"]).bad(1);
    assert!(fixture.uxfs(&["mknod", "a.img:/null", "p"]).bad(1).contains("exist"));
    fixture.check("a.img");
}

#[test]
fn tee_takes_a_stream() {
    let fixture = Fixture::with_image(&[]);
    let uxfs = env!("CARGO_BIN_EXE_uxfs");
    assert_eq!(fixture.sh(&format!("echo one | {uxfs} tee a.img:/a a.img:/b")), "one\n");
    fixture.sh(&format!("echo two | {uxfs} tee -a a.img:/a >/dev/null"));
    assert_eq!(fixture.uxfs(&["cat", "a.img:/a"]).good(), "one\ntwo\n");
    fixture.sh(&format!("head -c 5000000 /dev/zero | {uxfs} tee a.img:/b >/dev/null"));
    assert_eq!(fixture.uxfs(&["stat", "-c", "%s", "a.img:/b"]).good(), "5000000\n");
    // A file that cannot be written does not stop the others.
    fixture.uxfs(&["mkdir", "a.img:/dir"]).good();
    fixture.sh(&format!(
        "echo x | {uxfs} tee a.img:/dir a.img:/c 2>err >out && exit 1; grep -q dir err"
    ));
    assert_eq!(fixture.uxfs(&["cat", "a.img:/c"]).good(), "x\n");
    fixture.check("a.img");
}

#[test]
fn du_counts_as_coreutils_do() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    // Lengths of files do not depend on the file system; lengths of directories do.
    let of_files = |text: String, prefix: &str| {
        let mut lines: Vec<String> = text
            .lines()
            .filter(|line| {
                line.ends_with("/big") || line.ends_with("/file") || line.ends_with("sparse")
            })
            .map(|line| line.replace(prefix, ""))
            .collect();
        lines.sort();
        lines
    };
    for options in
        [&["-ab"][..], &["-a", "--apparent-size", "-k"], &["-al", "--apparent-size", "-h"]]
    {
        let ours = fixture.uxfs(&[&["du"], options, &["a.img:/t"]].concat()).good();
        let theirs = fixture.sh(&format!("du {} t", options.join(" ")));
        assert_eq!(of_files(ours, "a.img:/t"), of_files(theirs, "t"), "{options:?}");
    }
    // A sum equals the sum of its parts, and a sparse file counts only its allocated blocks.
    let all = fixture.uxfs(&["du", "-s", "a.img:/t"]).good();
    let (sum, path) = all.trim().split_once('\t').unwrap();
    assert_eq!(path, "a.img:/t");
    assert!((300..1000).contains(&sum.parse::<u64>().unwrap()), "{sum}");
    let depth = fixture.uxfs(&["du", "-d", "1", "a.img:/t"]).good();
    assert!(depth.lines().all(|line| line.matches('/').count() <= 2) && depth.ends_with(&all));
    assert_eq!(
        lines(&fixture.uxfs(&["du", "-sc", "a.img:/t/dir", "a.img:/t/many"]).good()).len(),
        3
    );
    let json = fixture.uxfs(&["du", "--json", "-s", "a.img:/t"]).good();
    assert!(json.starts_with(r#"{"schema":"uxfs.du","version":1,"#), "{json}");
    fixture.uxfs(&["du", "a.img:/none"]).bad(1);
}

#[test]
fn df_shows_what_a_kernel_would() {
    let fixture = Fixture::with_image(&[]);
    let text = fixture.uxfs(&["df", "a.img"]).good();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["Filesystem", "1K-blocks", "Used", "Available", "Use%"]);
    assert_eq!(rows[1][0], "a.img");
    let number = |at: usize| rows[1][at].parse::<u64>().unwrap();
    assert_eq!(number(1), number(2) + number(3));
    assert!(number(1) < 320 << 10 && number(3) > 200 << 10, "{text}");
    fixture.sh("head -c 50M /dev/urandom >big");
    fixture.uxfs(&["cp", "big", "a.img:/big"]).good();
    let after = fixture.uxfs(&["df", "-k", "a.img"]).good();
    let used: u64 =
        after.lines().nth(1).unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
    assert!((50 << 10..51 << 10).contains(&(used - number(2))), "{after}");
    assert!(fixture.uxfs(&["df", "-h", "a.img"]).good().contains('M'));
    assert!(fixture.uxfs(&["df", "-i", "a.img"]).good().starts_with("Filesystem"));
    assert!(fixture.uxfs(&["df", "--json", "a.img"]).good().contains("\"free_bytes\":"));
    assert!(fixture.uxfs(&["df", "none.img"]).bad(1).contains("none.img"));
}

#[test]
fn patterns_in_images_are_expanded_as_a_shell_does() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir -p t/bin t/lib t/.hid; touch t/bin/a t/bin/ab t/bin/.dot t/lib/x 't/bin/q?' t/.hid/h");
    fixture.sh(&format!(
        "{} cp -a t/* $(find t -maxdepth 1 -name '.h*') a.img:/",
        env!("CARGO_BIN_EXE_uxfs")
    ));
    let ls = |pattern: &str| {
        let output = fixture.uxfs(&["ls", "-d1", &format!("a.img:/{pattern}")]).good();
        output.replace("a.img:/", "")
    };
    for pattern in [
        "bin/*",
        "*/a*",
        "*",
        "b?n/[a-b]",
        "*/",
        ".h*/*",
        "[!b]*/x",
        "bin/.*",
        "bin/q\\?",
        "?in/ab",
    ] {
        let shell = fixture.sh(&format!("cd t; LC_ALL=C ls -d1 {pattern}"));
        let ours = ls(pattern);
        let dots = |text: &str| -> Vec<String> {
            // The shell also returns `.` and `..`, which an image does not list.
            text.lines()
                .filter(|l| !l.ends_with("/.") && !l.ends_with("/.."))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(dots(&ours), dots(&shell), "{pattern}");
    }
    // An existing file whose name looks like a pattern is that file.
    assert_eq!(ls("bin/q?"), "bin/q?\n");
    // A pattern without a match names a file that does not exist.
    assert!(fixture.uxfs(&["ls", "a.img:/bin/z*"]).bad(2).contains("z*"));
    assert!(fixture.uxfs(&["rm", "-r", "a.img:/z*"]).bad(1).contains("z*"));
    fixture.uxfs(&["rm", "-rf", "a.img:/z*"]).good();
    // Commands that write expand patterns too.
    fixture.uxfs(&["rm", "a.img:/bin/a*"]).good();
    assert_eq!(fixture.uxfs(&["ls", "a.img:/bin"]).good(), "q?\n");
    fixture.uxfs(&["cp", "a.img:/lib/*", "out"]).good();
    assert_eq!(fixture.sh("ls out"), "out\n");
}

#[test]
fn find_compares_dates_and_runs_programs() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir t; echo aa >t/a.conf; echo bb >t/b.conf; echo cc >t/c.txt; \
            touch -d 2020-01-01 t/a.conf; touch -d 2024-01-01 t/b.conf t/c.txt; touch -d 2022-01-01 ref");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    for words in [
        "-newermt 2021-01-01",
        "-newermt 2025-01-01",
        "-newer ref",
        "-newermm ref",
        "-type f ! -newermt '2022-06-01 12:00'",
        "-regextype posix-extended -regex '.*/[ab]\\.(conf|txt)'",
        "-regextype posix-extended -iregex '.*/A\\.CONF'",
    ] {
        let words = words.replace("ref", "../ref");
        let theirs = fixture.sh(&format!("cd t; find . {words} -printf '%P\\n' | sort"));
        let ours = words.replace("-regextype posix-extended ", "").replace("../ref", "ref");
        let uxfs = env!("CARGO_BIN_EXE_uxfs");
        let ours = fixture.sh(&format!("{uxfs} find a.img:/t {ours} -printf '%P\\n' | sort"));
        assert_eq!(ours, theirs, "{words}");
    }
    let each = ["find", "a.img:/t", "-name", "*.conf", "-exec", "echo", "<{}>", ";"];
    let output = fixture.uxfs(&each).good();
    let mut output = lines(&output);
    output.sort_unstable();
    assert_eq!(output, ["<a.img:/t/a.conf>", "<a.img:/t/b.conf>"]);
    let many = ["find", "a.img:/t", "-type", "f", "-exec", "echo", "{}", "+"];
    assert_eq!(fixture.uxfs(&many).good().split_whitespace().count(), 3);
    // With `;` the program's result is the test's result; with `+` it sets find's exit code.
    let only = [
        "find",
        "a.img:/t",
        "-type",
        "f",
        "-exec",
        "test",
        "{}",
        "=",
        "a.img:/t/a.conf",
        ";",
        "-print",
    ];
    assert_eq!(fixture.uxfs(&only).good(), "a.img:/t/a.conf\n");
    assert_eq!(fixture.uxfs(&["find", "a.img:/t", "-exec", "false", "{}", "+"]).code, 1);
    for wrong in [
        &["-regex", "("][..],
        &["-newermt", "soon"],
        &["-newerzz", "x"],
        &["-exec", ";"],
        &["-exec", "a"],
    ] {
        fixture.uxfs(&[&["find", "a.img:/t"], wrong].concat()).bad(1);
    }
    fixture.uxfs(&["find", "a.img:/t", "-name", "*.conf", "-delete"]).good();
    assert_eq!(fixture.uxfs(&["ls", "a.img:/t"]).good(), "c.txt\n");
}

#[test]
fn help_has_a_short_option_and_a_heading_for_volume_options() {
    let fixture = Fixture::new();
    let help = |args: &[&str]| fixture.uxfs(args).good();
    for command in ["mkdir", "cp", "mount", "check", "lab", "import"] {
        assert!(help(&[command, "-h"]).contains("-h, --help"), "{command}");
    }
    assert!(help(&["-h"]).contains("Usage:"));
    // Here the letter has its meaning in coreutils.
    assert!(fixture.uxfs(&["ls", "-h", "none.img"]).code != 0);
    for command in ["ls", "cp", "mount", "check", "touch"] {
        let text = help(&[command, "--help"]);
        let (own, volume) = text.split_once("Volume options:").expect(command);
        assert!(volume.contains("--partition") && !own.contains("--partition"), "{command}");
    }
    for command in [
        "bench",
        "lab",
        "crash",
        "crash-test",
        "ack",
        "completions",
        "man",
        "status",
        "umount",
        "sync",
    ] {
        assert!(!help(&[command, "--help"]).contains("--partition"), "{command}");
        assert!(
            fixture.uxfs(&[command, "--partition", "1"]).bad(2).contains("--partition"),
            "{command}"
        );
    }
}
