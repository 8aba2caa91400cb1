//! Volumes on object storage that are written from afar: held by one mount, gone on with after a kill, taken over. A
//! directory is the store.

use std::sync::Arc;

use uxfs::disk::BlockDev;
use uxfs::{Fs, OpenOptions};
use uxfs_remote::cloud::Cloud;
use uxfs_remote::{Address, CacheOptions, Checkpoint, Patience, Remote, RemoteDev};

use crate::fixture::{Fixture, Ran};
use crate::mount_ends::{server, until};

/// A store with a volume of one file, and its address.
fn shipped(fixture: &Fixture) -> String {
    let url = format!("file://{}", fixture.path("store").display());
    fixture.bash("echo one | uxfs tee a.img:/one").good();
    fixture.uxfs(&["ship", "a.img", &url]).good();
    fixture.sh("mkdir here there");
    url
}

/// Mounts the volume as the machine with this cache does.
fn mount(fixture: &Fixture, url: &str, dir: &str, mode: &str) -> Ran {
    let options = format!("ship_mode={mode},ship_cache=cache-{dir}");
    fixture.uxfs(&["mount", "-o", &options, url, dir])
}

fn kill(fixture: &Fixture, dir: &str) {
    let process = server(fixture, dir);
    fixture.sh(&format!("kill -9 {process}"));
    until("did the mount die", || fixture.bash(&format!("ls {dir}")).code != 0);
}

#[test]
fn a_volume_in_a_store_is_written_and_held() {
    let fixture = Fixture::with_image(&[]);
    let url = shipped(&fixture);
    mount(&fixture, &url, "here", "async").good();
    fixture.sh("cp -r /usr/include/linux here/two; cat here/one");
    let held = mount(&fixture, &url, "there", "async").bad(1);
    assert!(held.contains("writes this volume") && held.contains("--takeover"), "{held}");
    assert!(held.contains("process") && held.contains("since 2"), "{held}");
    // Also when the image has become older than the last checkpoint.
    fixture.uxfs(&["ship", "here", &url]).good();
    assert!(fixture.uxfs(&["ship", "a.img", &url]).bad(1).contains("writes this volume"));
    let status = fixture.uxfs(&["status", "here"]).good();
    assert!(status.contains("ship_cache") && !status.contains("ship_error"), "{status}");
    // Readers are not kept out.
    assert_eq!(fixture.uxfs(&["cat", &format!("{url}:/one")]).good(), "one\n");
    // What is not in place yet is replayed in memory, which the mount says.
    assert_eq!(fixture.uxfs(&["mount", "-o", "ro", &url, "there"]).code, 0);
    fixture.sh("grep one there/one");
    fixture.unmount("there");
    fixture.unmount("here");

    // What the store has needs no cache.
    assert_eq!(fixture.sh("stat -c %b cache-here/blocks").trim(), "0");
    fixture.uxfs(&["restore", "-q", &url, "then.img"]).good();
    fixture.check("then.img");
    fixture.uxfs(&["cp", "-r", "then.img:/two", "two"]).good();
    fixture.sh("diff -r --no-dereference /usr/include/linux two");
    mount(&fixture, &url, "there", "sync").good();
    fixture.sh("diff -r --no-dereference /usr/include/linux there/two; rm -r there/two");
    fixture.unmount("there");
    assert_eq!(fixture.uxfs(&["ls", &format!("{url}:/")]).good(), "one\n");
    let checkpoint = format!("{url}@1");
    fixture.uxfs(&["mount", "-o", "ro", &checkpoint, "there"]).good();
    fixture.unmount("there");
}

#[test]
fn a_killed_writer_goes_on_and_another_machine_takes_over() {
    let fixture = Fixture::with_image(&[]);
    let url = shipped(&fixture);
    mount(&fixture, &url, "here", "sync").good();
    fixture.sh("echo two >here/two; sync here/two");
    kill(&fixture, "here");
    // The same machine goes on.
    let said = mount(&fixture, &url, "here", "sync");
    assert!(said.code == 0, "{said:?}");
    assert_eq!(fixture.sh("cat here/two"), "two\n");
    fixture.sh("echo three >here/three; sync here/three");
    assert!(mount(&fixture, &url, "there", "sync").bad(1).contains("--takeover"));

    // Another one takes over, and has what fsync confirmed. The first one stops at its next write.
    let taken =
        fixture.uxfs(&["mount", "--takeover", "-o", "ship_cache=cache-there", &url, "there"]);
    assert!(taken.code == 0, "{taken:?}");
    assert_eq!(fixture.sh("cat there/one there/two there/three"), "one\ntwo\nthree\n");
    let lost = fixture.bash("echo four >here/four; sync here/four");
    assert!(lost.code != 0 && lost.err.contains("Input/output error"), "{lost:?}");
    assert!(fixture.bash("echo five >here/five; sync here/five").code != 0);
    fixture.sh("echo six >there/six; sync there/six");
    let ended = fixture.uxfs(&["umount", "here"]);
    assert!(ended.code != 0, "{ended:?}");
    let refused = mount(&fixture, &url, "here", "sync").bad(1);
    assert!(refused.contains("writes this volume"), "{refused}");
    fixture.unmount("there");
    let refused = mount(&fixture, &url, "here", "sync").bad(1);
    assert!(refused.contains("not shipped") && refused.contains("cache-here"), "{refused}");
    fixture.sh("rm -r cache-here");
    mount(&fixture, &url, "here", "sync").good();
    assert_eq!(fixture.sh("ls here"), "one\nsix\nthree\ntwo\n");
    fixture.unmount("here");
    fixture.uxfs(&["restore", "-q", &url, "then.img"]).good();
    fixture.check("then.img");
}

/// A mount that did not come about holds the volume for no one.
#[test]
fn a_mount_that_fails_gives_the_volume_up() {
    let fixture = Fixture::with_image(&[]);
    let url = shipped(&fixture);
    let is_free = |after: &str| {
        let other = mount(&fixture, &url, "there", "async");
        assert_eq!(other.code, 0, "after {after}: {other:?}");
        fixture.unmount("there");
    };
    let options = "ship_cache=cache-here";
    fixture.uxfs(&["mount", "--partition", "3", "-o", options, &url, "here"]).bad(1);
    is_free("a partition that is missing");
    fixture.uxfs(&["mount", "--logdev", "none", "-o", options, &url, "here"]).bad(1);
    is_free("a device that is missing");
    // The kernel does not mount what is no connection to it.
    let command = format!("{} mount -o {options} {url} here", env!("CARGO_BIN_EXE_uxfs"));
    let without_fuse = format!("mount --bind /dev/null /dev/fuse && exec {command}");
    fixture.bash(&format!("unshare -m sh -c '{without_fuse}'")).bad(1);
    is_free("a kernel that refuses");
    fixture.uxfs(&["serve", "-o", options, &url, "--virtiofs", "none/socket"]).bad(1);
    is_free("a socket that cannot be made");
    fixture.uxfs(&["serve", "-o", "fuseblk,ship_cache=cache-here", &url, "--virtiofs", "s"]).bad(1);
    is_free("an option that guests do not have");
    assert_eq!(fixture.uxfs(&["cat", &format!("{url}:/one")]).good(), "one\n");
}

#[test]
fn a_small_cache_holds_a_large_change() {
    let fixture = Fixture::with_image(&[]);
    let url = shipped(&fixture);
    let options = "ship_cache=cache,ship_cache_bytes=4m,ship_interval=1,dirty_bytes=4m";
    fixture.uxfs(&["mount", "-o", options, &url, "here"]).good();
    fixture.sh(
        "for i in 1 2 3 4 5; do head -c 20M /dev/urandom >here/$i; sha256sum here/$i; done >sums",
    );
    fixture.uxfs(&["sync", "here"]).good();
    fixture.sh("echo >here/small");
    fixture.uxfs(&["sync", "here"]).good();
    // The room of the volume's log, 64 MiB, is set aside.
    fixture.sh("test $(du -m cache/blocks | cut -f1) -le 84; sha256sum -c --quiet sums");
    fixture.unmount("here");
    fixture.uxfs(&["restore", "-q", &url, "then.img"]).good();
    fixture.check("then.img");
}

#[test]
fn what_cannot_be_held_is_refused() {
    let fixture = Fixture::with_image(&[]);
    let url = shipped(&fixture);
    let refused = |args: &[&str]| fixture.uxfs(&[&["mount"], args].concat()).bad(1);
    assert!(refused(&["--takeover", "a.img", "here"]).contains("in a store"));
    assert!(refused(&["--takeover", "-o", "ro", &url, "here"]).contains("in a store"));
    assert!(refused(&["-o", "ship=file:///elsewhere", &url, "here"]).contains("lies in a store"));
    assert!(refused(&[&url, "here"]).contains("ship_cache=DIR"), "there is no HOME");
    fixture.sh("mkdir empty");
    let empty = format!("file://{}", fixture.path("empty").display());
    assert!(refused(&["-o", "ship_cache=c", &empty, "here"]).contains("there is no volume"));
}

/// What a reader far away asks of the store for one small file: few requests, also if the volume was shipped in many
/// pieces.
#[test]
fn a_small_file_takes_few_requests() {
    let fixture = Fixture::with_image(&[]);
    let url = shipped(&fixture);
    for number in 0..12 {
        let dir = format!("a.img:/dir{number}");
        fixture.uxfs(&["cp", "-r", "/usr/include/linux", &dir]).good();
        fixture.uxfs(&["ship", "a.img", &url]).good();
    }
    let address = Address::parse(&url).unwrap();
    let store = Arc::new(Cloud::open(&address.url, false).unwrap());
    let remote = Arc::new(Remote::new(store, None, Patience::default()));
    let (manifest, _) = remote.at(&address).unwrap();
    assert!(manifest.layers.len() > 10);
    let checkpoint = Checkpoint::open(Arc::clone(&remote), manifest).unwrap();
    let opening = remote.requests();
    let dev: Arc<dyn BlockDev> = Arc::new(RemoteDev::new(checkpoint, CacheOptions::default()));
    let fs = Fs::open(dev, OpenOptions::read_only()).unwrap();
    let file = fs.resolve(b"/one", true).unwrap();
    let mut text = [0; 4];
    assert_eq!(fs.read_at(file, 0, &mut text).unwrap(), 4);
    assert_eq!(&text, b"one\n");
    let requests = remote.requests();
    assert!(opening <= 5 && requests <= 12, "{opening} to open it, {requests} in all");
}
