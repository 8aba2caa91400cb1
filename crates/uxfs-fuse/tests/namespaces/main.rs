//! Mounts that end while another mount namespace has a copy of them.
//!
//! A new mount namespace has copies of all mounts, also of those of other tests, which then do not end. So this is
//! a program of its own, which cargo runs alone, and has one test.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::process::Command;

use uxfs_fuse::{Detached, Options, mount_watched};

use crate::rig::Image;

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "../it/rig.rs"]
mod rig;

/// Ends a watched mount of which another mount namespace has a copy. `script` makes the namespace of the mount
/// `"$0"`, `look` looks at the mount there, in the directory of the image. Nothing may answer there after the end.
fn ended_with_a_copy(script: &str, look: &str) -> Detached {
    let image = Image::new(320 << 20, &[]);
    let dir = image.mount_point();
    let options = Options::default();
    let mounted = mount_watched(image.open(), &image.path(), &dir, &options, None).unwrap();
    std::fs::write(dir.join("f"), b"content").unwrap();
    let sh = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).arg(&dir).current_dir(dir.parent().unwrap());
        let out = command.env("LC_ALL", "C").output().unwrap();
        (out.status.success(), String::from_utf8(out.stderr).unwrap())
    };
    assert_eq!(sh(script), (true, String::new()));
    assert_eq!(sh(look), (true, String::new()));
    mounted.ender().end().unwrap();
    let detached = mounted.wait().unwrap();
    let (seen, why) = sh(look);
    sh("[ ! -e pid ] || kill $(cat pid); [ ! -d spaces ] || umount -l spaces/new spaces");
    // The last two errors are those of a call that came while the kernel took the rings apart.
    let ended = ["endpoint is not connected", "caused connection abort", "Operation canceled"];
    assert!(!seen && ended.iter().any(|error| why.contains(error)), "{why}");
    image.judge();
    detached.unwrap_or_else(|| panic!("nothing said of the copy"))
}

#[test]
fn a_mount_ends_although_another_namespace_has_a_copy() {
    let process = |what: &str| {
        format!(
            "mkfifo ready; unshare --mount --propagation private sh -c '{what} echo $$ >pid; echo >ready; \
             exec sleep 1000' \"$0\" >out 2>&1 & read -r _ <ready"
        )
    };
    let look = "touch \"/proc/$(cat pid)/root$0/new\"";
    let copied = ended_with_a_copy(&process(""), look);
    assert!(!copied.has_users() && copied.to_string().contains("another namespace"), "{copied}");
    let used = ended_with_a_copy(&process("exec 5<\"$0/f\";"), look);
    assert!(used.has_users() && used.to_string().contains("sleep (process"), "{used}");
    // A namespace without a process cannot be seen.
    let hidden = "mkdir spaces; mount -t tmpfs --make-private none spaces; >spaces/new
                  unshare --mount=spaces/new --propagation private true";
    let hidden = ended_with_a_copy(hidden, "nsenter --mount=spaces/new touch \"$0/new\"");
    assert!(!hidden.has_users() && hidden.to_string().contains("another namespace"), "{hidden}");
}
