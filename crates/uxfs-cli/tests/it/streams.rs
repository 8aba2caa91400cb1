//! Pipes, devices, standard input and standard output as file operands.

use crate::bed::Bed;

fn content(bed: &Bed, path: &str) -> String {
    bed.uxfs(&["cat", path]).good()
}

fn kind(bed: &Bed, path: &str) -> String {
    bed.uxfs(&["stat", "-c", "%F %s", path]).good()
}

#[test]
fn what_a_pipe_holds_is_copied() {
    let bed = Bed::with_image(&[]);
    bed.bash("echo hi | uxfs cp /dev/stdin a.img:/stdin").good();
    bed.bash("uxfs cp <(echo one) a.img:/substituted").good();
    bed.bash("echo dash | uxfs cp - a.img:/dash").good();
    bed.bash("mkfifo f; echo named >f & uxfs cp f a.img:/fifo; wait").good();
    for (path, text) in
        [("/stdin", "hi\n"), ("/substituted", "one\n"), ("/dash", "dash\n"), ("/fifo", "named\n")]
    {
        let path = format!("a.img:{path}");
        assert_eq!(content(&bed, &path), text);
        assert_eq!(kind(&bed, &path), format!("regular file {}\n", text.len()));
    }
    // As in cp: the permissions of the source.
    let mode = |path: &str| bed.uxfs(&["stat", "-c", "%a", path]).good();
    bed.bash("echo x | cp /dev/stdin real");
    assert_eq!(mode("a.img:/stdin"), bed.sh("stat -c %a real"));
    assert_eq!(bed.uxfs(&["cp", "/dev/null", "a.img:/null"]).good(), "");
    assert_eq!(kind(&bed, "a.img:/null"), "regular empty file 0\n");
    bed.check("a.img");
}

#[test]
fn with_r_special_files_are_made_anew() {
    let bed = Bed::with_image(&[]);
    bed.sh("mkfifo f");
    for options in ["-r", "-a"] {
        let path = format!("a.img:/f{options}");
        bed.uxfs(&["cp", options, "f", &path]).good();
        assert_eq!(kind(&bed, &path), "fifo 0\n");
    }
    bed.bash("echo held >f & uxfs cp -r --copy-contents f a.img:/held; wait").good();
    assert_eq!(content(&bed, "a.img:/held"), "held\n");
    // A fifo in an image has no content: nothing is created or overwritten.
    bed.sh("echo keep >kept");
    let words = bed.uxfs(&["cp", "a.img:/f-r", "kept"]).bad(1);
    assert!(words.contains("FIFO") && words.contains("-r"), "{words}");
    assert_eq!(bed.sh("cat kept"), "keep\n");
    bed.check("a.img");
}

#[test]
fn files_that_tell_no_length_have_content() {
    let bed = Bed::with_image(&[]);
    bed.uxfs(&["cp", "/proc/version", "a.img:/v"]).good();
    assert_eq!(content(&bed, "a.img:/v"), bed.sh("cat /proc/version"));
}

#[test]
fn a_dash_is_standard_output() {
    let bed = Bed::with_image(&[]);
    bed.tree_in_image();
    bed.bash("uxfs cp a.img:/t/sparse - >got; cmp got t/sparse").good();
    bed.bash("uxfs cp a.img:/t/dir/big /dev/stdout | cmp - t/dir/big").good();
    bed.bash("uxfs cp a.img:/t/dir/big - | cmp - t/dir/big; test ! -e -").good();
    bed.bash("uxfs cp a.img:/t/file /dev/null; test -c /dev/null").good();
    assert_eq!(
        bed.bash("echo in | uxfs cat a.img:/t/file - a.img:/t/hard").good(),
        "helloin\nhello"
    );
    bed.bash("uxfs export a.img:/t/many -o - | tar t | grep -c rather").good();
    bed.bash("test ! -e -").good();
    for args in [
        &["cp", "a.img:/t/file", "a.img:/t/hard", "-"][..],
        &["cp", "-r", "a.img:/t/dir", "-"],
        &["cp", "t/file", "-"],
        &["cp", "-", "a.img:/t/dir"],
        &["cp", "-P", "a.img:/t/link", "-"],
    ] {
        bed.uxfs(args).bad(1);
    }
    assert_eq!(bed.uxfs(&["ls", "a.img:/t/dir"]).good(), "big\ndeeper\nup\n");
}

#[test]
fn a_manifest_comes_through_a_pipe() {
    let bed = Bed::new();
    bed.sh("mkdir objects");
    let manifest = "/ 4096 40755 2 0 0 0 0.0 - - -\\n/f 0 100644 1 0 0 0 0.0 - - -\\n";
    let text =
        format!("printf '{manifest}' | uxfs import -q --manifest - --size 320M objects a.img");
    bed.bash(&text).good();
    assert_eq!(bed.uxfs(&["ls", "a.img"]).good(), "f\n");
    let words = bed.bash(&text.replace("--size 320M ", "").replace("a.img", "b.img")).bad(1);
    assert!(words.contains("--size"), "{words}");
    assert!(!bed.path("b.img").exists());
}

#[test]
fn large_streams_pass_whole_and_in_bounded_memory() {
    const BYTES: u64 = 200 << 20;
    let bed = Bed::with_image(&[]);
    // The limit on address space leaves room for threads and code, but not for the stream.
    let line = format!(
        "head -c {BYTES} /dev/zero | tr '\\0' y | tee >(sha256sum >before) | \
         (ulimit -d 150000; uxfs cp - a.img:/big) && uxfs cat a.img:/big | sha256sum >after; \
         while [ ! -s before ]; do sleep 0.1; done; cmp before after"
    );
    bed.bash(&line).good();
    assert_eq!(kind(&bed, "a.img:/big"), format!("regular file {BYTES}\n"));
    bed.check("a.img");
}

#[test]
fn a_stream_that_breaks_is_told_and_leaves_what_came() {
    let bed = Bed::with_image(&[]);
    // A directory can be opened but not read, so the first read fails.
    let ran = bed.bash("uxfs cp - a.img:/broken <.");
    let words = ran.bad(1);
    assert!(words.contains("standard input"), "{words}");
    // A process' memory can be read up to a hole.
    let words = bed.bash("uxfs cp /proc/self/mem a.img:/mem").bad(1);
    assert!(words.contains("/proc/self/mem"), "{words}");
    // The volume is full before the end of the stream.
    let words = bed.bash("uxfs cp - a.img:/endless </dev/zero").bad(1);
    assert!(words.contains("no space left"), "{words}");
    bed.check("a.img");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_quietly() {
    let bed = Bed::with_image(&[]);
    bed.sh("head -c 20000000 /dev/zero >big");
    bed.uxfs(&["cp", "big", "a.img:/big"]).good();
    for command in
        ["cp a.img:/big -", "cat a.img:/big", "cp a.img:/big /dev/stdout", "export a.img -o -"]
    {
        let text = format!("uxfs {command} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}");
        assert_eq!(bed.bash(&text).good(), "141\n", "{command}");
    }
}
