//! `uxfs scrub` of a mount.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::mounts::with_dir;

/// Scrubs that may begin before one meets a change.
const TRIES: usize = 5000;

#[test]
fn a_mount_is_scrubbed() {
    let fixture = with_dir();
    assert!(!fixture.uxfs(&["scrub", "mnt"]).bad(8).is_empty());
    fixture.uxfs(&["mount", "a.img", "mnt"]).good();
    fixture.sh("for n in $(seq 50); do echo $n >mnt/n$n; done");
    let said = fixture.uxfs(&["scrub", "mnt"]).good();
    assert!(said.starts_with("clean: "), "{said}");
    let said = fixture.uxfs(&["scrub", "--json", "mnt"]).good();
    let head = "{\"schema\":\"uxfs.scrub\",\"version\":1,\"dir\":\"mnt\",\"verdict\":\"clean\"";
    assert!(said.starts_with(head), "{said}");
    // The volume is opened anew, and what is written then is kept for the next scrub.
    fixture.uxfs(&["mount", "-o", "remount,commit=7", "mnt"]).good();
    fixture.sh("echo more >mnt/more");
    fixture.uxfs(&["scrub", "mnt"]).good();
    fixture.unmount("mnt");
    fixture.check("a.img");
}

#[test]
fn without_memory_for_old_content_there_is_no_verdict() {
    let fixture = with_dir();
    fixture.uxfs(&["mount", "a.img", "mnt"]).good();
    let (dir, stop) = (fixture.path("mnt/x"), AtomicBool::new(false));
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                std::fs::create_dir(&dir).unwrap();
                for n in 0..200 {
                    std::fs::write(dir.join(format!("a long name with number {n}")), b"").unwrap();
                }
                std::fs::remove_dir_all(&dir).unwrap();
            }
        });
        let scrub = ["scrub", "--kept-bytes", "4096", "mnt"];
        let ended = (0..TRIES).map(|_| fixture.uxfs(&scrub)).find(|ran| ran.code != 0);
        stop.store(true, Ordering::Release);
        ended
    });
    let said = seen.map(|ran| ran.bad(8)).unwrap_or_default();
    assert!(said.contains("no verdict"), "{said}");
    fixture.uxfs(&["scrub", "mnt"]).good();
    fixture.unmount("mnt");
    fixture.check("a.img");
}
