//! Volumes on object storage: shipped by a mount and at rest, restored, and read in place. A directory is the
//! store.

use std::sync::Arc;

use uxfs_remote::cloud::Cloud;
use uxfs_remote::{Address, Patience, Remote};

use crate::fixture::Fixture;

fn url(fixture: &Fixture) -> String {
    format!("file://{}", fixture.path("store").display())
}

#[test]
fn a_mount_ships_what_is_synced() {
    let fixture = Fixture::with_image(&[]);
    let url = url(&fixture);
    let options = format!("ship={url}");
    fixture.sh("mkdir m");
    fixture.uxfs(&["mount", "-o", &options, "a.img", "m"]).good();
    fixture.sh("cp -r /usr/include/linux m/one");
    fixture.uxfs(&["sync", "m"]).good();
    fixture.uxfs(&["restore", "-q", &url, "then.img"]).good();
    fixture.sh("rm -r m/one; echo two >m/two");
    let shipped = fixture.uxfs(&["ship", "m", &url]).good();
    assert!(shipped.starts_with("checkpoint "), "{shipped}");
    assert_eq!(fixture.uxfs(&["cat", &format!("{url}:/two")]).good(), "two\n");
    assert!(fixture.uxfs(&["ship", "m", "file:///else"]).bad(1).contains("is shipped to file:"));
    let status = fixture.uxfs(&["status", "m"]).good();
    assert!(status.contains("ship_mode") && !status.contains("ship_error"), "{status}");
    let refused = fixture.uxfs(&["mount", "-o", "remount,commit=9", "m"]).bad(1);
    assert!(refused.contains("ship"), "{refused}");
    let busy = fixture.uxfs(&["ship", "a.img", &url]).bad(1);
    assert!(busy.contains("a.img"), "{busy}");
    fixture.unmount("m");

    // What was synced is there, whatever came later.
    fixture.check("then.img");
    fixture.uxfs(&["cp", "-r", "then.img:/one", "one"]).good();
    fixture.sh("diff -r --no-dereference /usr/include/linux one");
    // The last state is the image, byte for byte.
    fixture.uxfs(&["restore", "-q", &url, "now.img"]).good();
    fixture.sh("cmp a.img now.img");
    fixture.check("now.img");
    assert_eq!(fixture.uxfs(&["cat", &format!("{url}:/two")]).good(), "two\n");
    assert_eq!(fixture.uxfs(&["ls", &format!("{url}@1:/")]).good(), "");
}

#[test]
fn a_mount_with_ship_mode_sync_has_everything_in_the_store() {
    let fixture = Fixture::with_image(&[]);
    let url = url(&fixture);
    fixture.sh("mkdir m");
    let options = format!("ship={url},ship_mode=sync");
    fixture.uxfs(&["mount", "-o", &options, "a.img", "m"]).good();
    fixture.sh("echo synced >m/file; sync m/file");
    assert_eq!(fixture.uxfs(&["cat", &format!("{url}:/file")]).good(), "synced\n");
    fixture.unmount("m");
}

#[test]
fn an_image_at_rest_is_shipped_pruned_and_restored() {
    let fixture = Fixture::with_image(&[]);
    let url = url(&fixture);
    let ship = |options: &[&str]| fixture.uxfs(&[&["ship"], options, &[&url]].concat());
    let first = ship(&["--json", "a.img"]).good();
    assert!(first.contains("\"checkpoint\":1,"), "{first}");
    assert_eq!(ship(&["a.img"]).good(), "nothing changed\n");
    for name in ["one", "two", "three"] {
        fixture.bash(&format!("echo {name} | uxfs tee a.img:/{name}")).good();
        ship(&["a.img"]).good();
    }
    let list = fixture.uxfs(&["restore", "--list", &url]).good();
    assert_eq!(list.lines().count(), 5, "{list}");
    fixture.uxfs(&["restore", "--at", "2", &url, "second.img"]).good();
    assert_eq!(fixture.uxfs(&["ls", "second.img:/"]).good(), "one\n");
    fixture.check("second.img");
    let done = ship(&["--compact", "--keep", "1"]).good();
    assert!(done.contains("1 checkpoints kept"), "{done}");
    fixture.uxfs(&["restore", &url, "last.img"]).good();
    fixture.sh("cmp a.img last.img");
    assert_eq!(fixture.uxfs(&["check", &url]).code, 0);
    let gone = fixture.uxfs(&["restore", "--at", "2", &url, "x.img"]).bad(1);
    assert!(gone.contains("no checkpoint 2"), "{gone}");
}

/// A fork names its base so: by number, and the first digits of the hash.
#[test]
fn a_pinned_address_restores_only_the_checkpoint_that_it_means() {
    let fixture = Fixture::with_image(&[]);
    let url = url(&fixture);
    fixture.uxfs(&["ship", "a.img", &url]).good();
    let address = Address::parse(&format!("{url}@1")).unwrap();
    let store = Arc::new(Cloud::open(&address.url, false).unwrap());
    let (_, hash) = Remote::new(store, None, Patience::default()).at(&address).unwrap();
    let pinned = format!("{url}@1#{}", &hash.to_string()[..16]);
    fixture.uxfs(&["restore", "-q", &pinned, "then.img"]).good();
    fixture.sh("cmp a.img then.img; rm -r store then.img");
    // The same number in a store that was made anew.
    fixture.image("b.img", &[]);
    fixture.uxfs(&["ship", "b.img", &url]).good();
    let other = fixture.uxfs(&["restore", "-q", &pinned, "then.img"]).bad(1);
    assert!(other.contains("made anew"), "{other}");
    fixture.sh("test ! -e then.img");
}

/// One that is shipped without a part of it could not be opened.
#[test]
fn a_volume_on_several_devices_is_not_shipped() {
    let fixture = Fixture::new();
    let url = url(&fixture);
    fixture.sh("truncate -s 300m a.img b.img; truncate -s 80m log.img rt.img; \
            mkfs.xfs -q -l logdev=log.img a.img; mkfs.xfs -q -r rtdev=rt.img b.img");
    for (image, options, said) in [
        ("a.img", &[][..], "external log"),
        ("a.img", &["--logdev", "log.img"], "external log"),
        ("b.img", &[], "realtime device"),
    ] {
        let refused = fixture.uxfs(&[&["ship", image, &url], options].concat()).bad(1);
        assert!(refused.contains(said) && refused.contains("cannot be shipped"), "{refused}");
    }
    fixture.sh("test -z \"$(find store -type f)\"");
}

#[test]
fn an_encrypted_volume_needs_its_key() {
    let fixture = Fixture::with_image(&[]);
    let url = url(&fixture);
    fixture.sh("head -c 32 /dev/urandom >key; head -c 32 /dev/urandom >other; echo short >bad");
    fixture.bash("echo secretword | uxfs tee a.img:/file").good();
    fixture.uxfs(&["ship", "--key", "key", "a.img", &url]).good();
    assert!(fixture.uxfs(&["restore", &url, "x.img"]).bad(1).contains("is encrypted"));
    let other = fixture.uxfs(&["restore", "--key", "other", &url, "x.img"]).bad(1);
    assert!(other.contains("does not open with this key"), "{other}");
    assert!(fixture.uxfs(&["restore", "--key", "bad", &url, "x.img"]).bad(1).contains("32 bytes"));
    fixture.uxfs(&["restore", "--key", "key", &url, "x.img"]).good();
    fixture.sh("cmp a.img x.img; ! grep -rq secretword store");
    let read = fixture.bash(&format!("export UXFS_KEY_FILE=key; uxfs cat {url}:/file"));
    assert_eq!(read.good(), "secretword\n");
}

#[test]
fn what_is_wrong_is_named_and_leaves_no_image() {
    let fixture = Fixture::with_image(&[]);
    let url = url(&fixture);
    let missing = fixture.uxfs(&["restore", &url, "x.img"]).bad(1);
    assert!(missing.contains("store"), "{missing}");
    fixture.sh("mkdir store");
    assert!(fixture.uxfs(&["restore", &url, "x.img"]).bad(1).contains("there is no volume"));
    fixture.uxfs(&["ship", "a.img", &url]).good();
    fixture.image("b.img", &[]);
    assert!(fixture.uxfs(&["ship", "b.img", &url]).bad(1).contains("another volume"));
    let small = fixture.uxfs(&["ship", "a.img"]);
    assert_ne!(small.code, 0);
    // The delta is behind the manifest.
    fixture.sh("f=$(ls store/manifests/*); printf X | dd of=$f bs=1 seek=400 conv=notrunc 2>&1");
    let damaged = fixture.uxfs(&["restore", &url, "x.img"]).bad(1);
    assert!(damaged.contains("is damaged") && damaged.contains("manifests/"), "{damaged}");
    fixture.sh("rm -r store; mkdir store; head -c 9000000 /dev/urandom >large");
    fixture.uxfs(&["cp", "large", "a.img:/large"]).good();
    fixture.uxfs(&["ship", "a.img", &url]).good();
    fixture.sh("rm store/deltas/*");
    assert!(fixture.uxfs(&["restore", &url, "x.img"]).bad(1).contains("is missing"));
    fixture.sh("test ! -e x.img; test -z \"$(ls -A | grep x.img)\"");
}

#[test]
fn a_copy_from_before_is_no_newest_state() {
    let fixture = Fixture::with_image(&[]);
    let url = url(&fixture);
    fixture.sh("cp a.img old.img; mkdir m");
    fixture.bash("echo one | uxfs tee a.img:/one").good();
    fixture.uxfs(&["ship", "a.img", &url]).good();
    let older = fixture.uxfs(&["ship", "old.img", &url]).bad(1);
    assert!(older.contains("is older than checkpoint 1") && older.contains("--force"), "{older}");
    let option = format!("ship={url}");
    let older = fixture.uxfs(&["mount", "-o", &option, "old.img", "m"]).bad(1);
    assert!(older.contains("is older than checkpoint 1"), "{older}");
    assert_eq!(fixture.uxfs(&["cat", &format!("{url}:/one")]).good(), "one\n");
    fixture.uxfs(&["ship", "--force", "old.img", &url]).good();
    assert_eq!(fixture.uxfs(&["ls", &format!("{url}:/")]).good(), "");
    // What is later is shipped unasked.
    fixture.uxfs(&["ship", "a.img", &url]).good();
    assert_eq!(fixture.uxfs(&["cat", &format!("{url}:/one")]).good(), "one\n");
}

#[test]
fn a_checkpoint_has_forks() {
    let fixture = Fixture::with_image(&[]);
    let url = url(&fixture);
    fixture.sh("mkdir m n");
    let ran = |args: &[&str]| fixture.uxfs(args).good();
    fixture.bash("head -c 5M /dev/zero | tr '\\0' x | uxfs tee a.img:/large").good();
    fixture.bash("echo one | uxfs tee a.img:/one").good();
    ran(&["ship", "a.img", &url]);
    fixture.bash("echo two | uxfs tee a.img:/two").good();
    ran(&["ship", "a.img", &url]);
    let first = format!("{url}@1");

    ran(&["fork", &first, "child"]);
    assert_eq!(std::fs::metadata(fixture.path("child")).unwrap().len(), 8192);
    assert_eq!(ran(&["ls", "child:/"]), "large\none\n");
    ran(&["mkdir", "child:/dir"]);
    ran(&["check", "child"]);
    ran(&["fork", "child", "grandchild"]);
    ran(&["mount", "grandchild", "m"]);
    fixture.sh("echo three >m/dir/three");
    fixture.unmount("m");
    assert_eq!(ran(&["cat", "grandchild:/dir/three"]), "three\n");
    ran(&["mount", &url, "--delta", "other", "m"]);
    ran(&["mount", &first, "--delta", "more", "n"]);
    fixture.sh("rm m/one; echo four >n/four; test -e m/two; test ! -e n/two");
    fixture.unmount("m");
    fixture.unmount("n");
    // The same delta again, with and without the number.
    ran(&["mount", &first, "--delta", "more", "n"]);
    fixture.sh("grep four n/four");
    fixture.unmount("n");
    ran(&["mount", &url, "--delta", "more", "n"]);
    fixture.unmount("n");
    let wrong = fixture.uxfs(&["mount", &format!("{url}@2"), "--delta", "more", "n"]).bad(1);
    assert!(wrong.contains("is a fork of file:"), "{wrong}");

    // What both share is not read.
    let differs = |old: &str, new: &str| {
        let ran = fixture.uxfs(&["diff", "--json", old, new]);
        assert_eq!(ran.code, 1, "{ran:?}");
        let read = ran.out.split("\"read_bytes\":").nth(1).unwrap();
        let read: u64 = read.split([',', '}']).next().unwrap().trim().parse().unwrap();
        assert!(read < 100_000, "{ran:?}");
        ran.out
    };
    assert!(differs(&first, &format!("{url}@2")).contains("/two"));
    let changed = differs("child", &url);
    assert!(changed.contains("/two") && changed.contains("/dir"), "{changed}");
    assert!(differs("grandchild", "other").contains("/two"));
    assert_eq!(fixture.uxfs(&["diff", &first, &first]).code, 0);

    // The checkpoint stays as it is; the child is shipped as a volume of its own.
    assert!(fixture.uxfs(&["commit", "child"]).bad(1).contains("stays as it is"));
    let own = format!("file://{}", fixture.path("own").display());
    ran(&["ship", "grandchild", &own]);
    ran(&["restore", "-q", &own, "own.img"]);
    fixture.check("own.img");
    assert_eq!(ran(&["cat", "own.img:/dir/three"]), "three\n");
    assert_eq!(ran(&["ls", &format!("{first}:/")]), "large\none\n");
    // A store that was made anew has no such checkpoint.
    fixture.sh("rm -r store");
    fixture.image("b.img", &[]);
    ran(&["ship", "b.img", &url]);
    let other = fixture.uxfs(&["ls", "child:/"]);
    assert!(other.code != 0 && other.err.contains("made anew"), "{other:?}");
}
