//! Pipes, devices, standard input and standard output as file operands.

use crate::fixture::Fixture;

fn content(fixture: &Fixture, path: &str) -> String {
    fixture.uxfs(&["cat", path]).good()
}

fn kind(fixture: &Fixture, path: &str) -> String {
    fixture.uxfs(&["stat", "-c", "%F %s", path]).good()
}

#[test]
fn cp_copies_the_content_of_a_pipe() {
    let fixture = Fixture::with_image(&[]);
    fixture.bash("echo hi | uxfs cp /dev/stdin a.img:/stdin").good();
    fixture.bash("uxfs cp <(echo one) a.img:/substituted").good();
    fixture.bash("echo dash | uxfs cp - a.img:/dash").good();
    fixture.bash("mkfifo f; echo named >f & uxfs cp f a.img:/fifo; wait").good();
    for (path, text) in
        [("/stdin", "hi\n"), ("/substituted", "one\n"), ("/dash", "dash\n"), ("/fifo", "named\n")]
    {
        let path = format!("a.img:{path}");
        assert_eq!(content(&fixture, &path), text);
        assert_eq!(kind(&fixture, &path), format!("regular file {}\n", text.len()));
    }
    // As in cp: the permissions of the source.
    let mode = |path: &str| fixture.uxfs(&["stat", "-c", "%a", path]).good();
    fixture.bash("echo x | cp /dev/stdin real");
    assert_eq!(mode("a.img:/stdin"), fixture.sh("stat -c %a real"));
    assert_eq!(fixture.uxfs(&["cp", "/dev/null", "a.img:/null"]).good(), "");
    assert_eq!(kind(&fixture, "a.img:/null"), "regular empty file 0\n");
    fixture.check("a.img");
}

#[test]
fn cp_r_recreates_special_files() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkfifo f");
    for options in ["-r", "-a"] {
        let path = format!("a.img:/f{options}");
        fixture.uxfs(&["cp", options, "f", &path]).good();
        assert_eq!(kind(&fixture, &path), "fifo 0\n");
    }
    fixture.bash("echo held >f & uxfs cp -r --copy-contents f a.img:/held; wait").good();
    assert_eq!(content(&fixture, "a.img:/held"), "held\n");
    // A fifo in an image has no content: nothing is created or overwritten.
    fixture.sh("echo keep >kept");
    let words = fixture.uxfs(&["cp", "a.img:/f-r", "kept"]).bad(1);
    assert!(words.contains("FIFO") && words.contains("-r"), "{words}");
    assert_eq!(fixture.sh("cat kept"), "keep\n");
    fixture.check("a.img");
}

#[test]
fn files_without_a_length_are_copied_with_content() {
    let fixture = Fixture::with_image(&[]);
    fixture.uxfs(&["cp", "/proc/version", "a.img:/v"]).good();
    assert_eq!(content(&fixture, "a.img:/v"), fixture.sh("cat /proc/version"));
}

#[test]
fn a_dash_is_standard_output() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    fixture.bash("uxfs cp a.img:/t/sparse - >got; cmp got t/sparse").good();
    fixture.bash("uxfs cp a.img:/t/dir/big /dev/stdout | cmp - t/dir/big").good();
    fixture.bash("uxfs cp a.img:/t/dir/big - | cmp - t/dir/big; test ! -e -").good();
    fixture.bash("uxfs cp a.img:/t/file /dev/null; test -c /dev/null").good();
    assert_eq!(
        fixture.bash("echo in | uxfs cat a.img:/t/file - a.img:/t/hard").good(),
        "helloin\nhello"
    );
    fixture.bash("uxfs export a.img:/t/many -o - | tar t | grep -c rather").good();
    fixture.bash("test ! -e -").good();
    for args in [
        &["cp", "a.img:/t/file", "a.img:/t/hard", "-"][..],
        &["cp", "-r", "a.img:/t/dir", "-"],
        &["cp", "t/file", "-"],
        &["cp", "-", "a.img:/t/dir"],
        &["cp", "-P", "a.img:/t/link", "-"],
    ] {
        fixture.uxfs(args).bad(1);
    }
    assert_eq!(fixture.uxfs(&["ls", "a.img:/t/dir"]).good(), "big\ndeeper\nup\n");
}

#[test]
fn a_manifest_is_read_from_a_pipe() {
    let fixture = Fixture::new();
    fixture.sh("mkdir objects");
    let manifest = "/ 4096 40755 2 0 0 0 0.0 - - -\\n/f 0 100644 1 0 0 0 0.0 - - -\\n";
    let text =
        format!("printf '{manifest}' | uxfs import -q --manifest - --size 320M objects a.img");
    fixture.bash(&text).good();
    assert_eq!(fixture.uxfs(&["ls", "a.img"]).good(), "f\n");
    let words = fixture.bash(&text.replace("--size 320M ", "").replace("a.img", "b.img")).bad(1);
    assert!(words.contains("--size"), "{words}");
    assert!(!fixture.path("b.img").exists());
}

#[test]
fn large_streams_pass_whole_and_in_bounded_memory() {
    const BYTES: u64 = 200 << 20;
    let fixture = Fixture::with_image(&[]);
    // The limit on address space leaves room for threads and code, but not for the stream.
    let line = format!(
        "head -c {BYTES} /dev/zero | tr '\\0' y | tee >(sha256sum >before) | \
         (ulimit -d 150000; uxfs cp - a.img:/big) && uxfs cat a.img:/big | sha256sum >after; \
         while [ ! -s before ]; do sleep 0.1; done; cmp before after"
    );
    fixture.bash(&line).good();
    assert_eq!(kind(&fixture, "a.img:/big"), format!("regular file {BYTES}\n"));
    fixture.check("a.img");
}

#[test]
fn a_broken_stream_is_reported_and_keeps_the_data_before_it() {
    let fixture = Fixture::with_image(&[]);
    // A directory can be opened but not read, so the first read fails.
    let ran = fixture.bash("uxfs cp - a.img:/broken <.");
    let words = ran.bad(1);
    assert!(words.contains("standard input"), "{words}");
    // A process' memory can be read up to a hole.
    let words = fixture.bash("uxfs cp /proc/self/mem a.img:/mem").bad(1);
    assert!(words.contains("/proc/self/mem"), "{words}");
    // The volume is full before the end of the stream.
    let words = fixture.bash("uxfs cp - a.img:/endless </dev/zero").bad(1);
    assert!(words.contains("no space left"), "{words}");
    fixture.check("a.img");
}

#[test]
fn a_closed_pipe_ends_the_command_without_a_message() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("head -c 20000000 /dev/zero >big");
    fixture.uxfs(&["cp", "big", "a.img:/big"]).good();
    for command in
        ["cp a.img:/big -", "cat a.img:/big", "cp a.img:/big /dev/stdout", "export a.img -o -"]
    {
        let text = format!("uxfs {command} | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}");
        assert_eq!(fixture.bash(&text).good(), "141\n", "{command}");
    }
}
