//! `uxfs mount` and `uxfs umount`, as root or an ordinary user. An ordinary user needs fusermount3.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::bed::Bed;

fn mounted(bed: &Bed) -> bool {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = bed.path("mnt").canonicalize().unwrap_or_else(|_| bed.path("mnt"));
    list.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(&dir))
}

fn with_dir() -> Bed {
    let bed = Bed::with_image(&[]);
    std::fs::create_dir(bed.path("mnt")).unwrap();
    bed
}

/// A mount in the foreground.
fn foreground(bed: &Bed) -> Child {
    serve(bed, "rw")
}

fn serve(bed: &Bed, options: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
    command.args(["mount", "-f", "-o", options, "a.img", "mnt"]).current_dir(bed.path("."));
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    while !mounted(bed) {
        assert!(child.try_wait().unwrap().is_none(), "the mount did not come up");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child
}

#[test]
fn what_is_written_is_in_the_image() {
    let bed = with_dir();
    // A successful mount prints nothing.
    assert_eq!(bed.uxfs(&["mount", "a.img", "mnt"]).good(), "");
    assert!(mounted(&bed));
    bed.sh("echo content >mnt/file; mkdir mnt/dir; mv mnt/file mnt/dir/");
    let busy = bed.uxfs(&["ls", "a.img:/"]).bad(2);
    assert!(busy.contains("in use"), "{busy}");
    let again = bed.uxfs(&["mount", "a.img", "mnt"]).bad(1);
    assert!(again.contains("in use"), "{again}");
    bed.uxfs(&["umount", "mnt"]).good();
    assert!(!mounted(&bed));
    assert_eq!(bed.uxfs(&["cat", "a.img:/dir/file"]).good(), "content\n");
    bed.check("a.img");
    let none = bed.uxfs(&["umount", "mnt"]).bad(1);
    assert!(none.contains("no volume is mounted here"), "{none}");
}

#[test]
fn wrong_options_are_named() {
    let bed = with_dir();
    for (options, named) in [("nosuch", "nosuch"), ("logbufs=9", "logbufs"), ("norecovery", "ro")] {
        let said = bed.uxfs(&["mount", "-o", options, "a.img", "mnt"]).bad(1);
        assert!(said.contains(named), "{said}");
    }
    assert!(bed.uxfs(&["mount", "none.img", "mnt"]).bad(1).contains("no such file"));
    std::fs::write(bed.path("text"), "no volume\n").unwrap();
    assert!(bed.uxfs(&["mount", "text", "mnt"]).code == 1);
    assert!(!mounted(&bed));
}

#[test]
fn a_running_mount_tells_of_itself_and_syncs() {
    let bed = with_dir();
    let said = bed.uxfs(&["mount", "-o", "commit=60,dirty_writeback_centisecs=0", "a.img", "mnt"]);
    assert!(said.code == 0 && said.err.contains("60 seconds"), "{said:?}");
    bed.sh("mkdir mnt/dir; echo content >mnt/dir/file");
    let status = bed.uxfs(&["status", "mnt/dir"]).good();
    assert!(status.contains("commit_seconds         60"), "{status}");
    assert!(bed.uxfs(&["status", "--json", "mnt"]).good().contains("\"dirty_bytes\":4096"));
    // Other tests can have mounts at the same time.
    let all = bed.uxfs(&["status"]).out;
    assert!(all.contains(&*bed.path("mnt").to_string_lossy()), "{all}");
    bed.uxfs(&["sync", "mnt/dir/file"]).good();
    assert!(bed.uxfs(&["status", "--json", "mnt"]).good().contains("\"dirty_bytes\":0"));
    let stats = bed.uxfs(&["stats", "mnt"]).good();
    assert!(stats.lines().any(|line| line == "data_writes 1"), "{stats}");
    let watched = bed.uxfs(&["stats", "mnt", "--watch", "1", "--count", "1"]).good();
    assert_eq!(watched.lines().count(), 2, "{watched}");
    bed.uxfs(&["umount", "mnt"]).good();
    assert!(bed.uxfs(&["status", "mnt"]).code == 3, "it has ended");
    for command in ["sync", "stats"] {
        let said = bed.uxfs(&[command, "mnt"]).bad(1);
        assert!(said.contains("no volume is mounted here"), "{command}: {said}");
    }
    assert!(bed.uxfs(&["stats", "--watch", "1", "a.img"]).bad(1).contains("--watch"));
    bed.check("a.img");
}

#[test]
fn blocks_are_shared_on_a_mount() {
    let bed = with_dir();
    assert_eq!(bed.uxfs(&["mount", "a.img", "mnt"]).code, 0);
    bed.sh("mkdir mnt/dir; head -c 5000001 /dev/urandom >mnt/big; echo old >mnt/clone");
    let free = || {
        let status = bed.uxfs(&["status", "mnt"]).good();
        let line = status.lines().find(|line| line.contains("blocks_free")).unwrap().to_owned();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    bed.uxfs(&["sync", "mnt"]).good();
    let before = free();
    bed.uxfs(&["cp", "--reflink=always", "mnt/big", "mnt/clone"]).good();
    bed.uxfs(&["cp", "--reflink=always", "mnt/big", "mnt/dir"]).good();
    bed.uxfs(&["sync", "mnt"]).good();
    assert!(before.saturating_sub(free()) < 100, "{before} blocks were free, {} are", free());
    bed.sh("cmp mnt/big mnt/clone; cmp mnt/big mnt/dir/big; echo more >>mnt/clone");
    bed.sh("! cmp -s mnt/big mnt/clone; cmp mnt/big mnt/dir/big");
    let said = bed.uxfs(&["cp", "--reflink=always", "mnt/big", "elsewhere"]).bad(1);
    assert!(said.contains("mount"), "{said}");
    assert!(bed.uxfs(&["cp", "mnt/big", "mnt/dir/other"]).bad(1).contains("use cp"));
    bed.uxfs(&["umount", "mnt"]).good();
    bed.check("a.img");
}

#[test]
fn resident_memory_follows_cache_bytes() {
    let bed = with_dir();
    let mut child = serve(&bed, "cache_bytes=4m");
    bed.sh("cd mnt; for d in $(seq 20); do mkdir $d; seq -f \"$d/%g\" 1000 | xargs touch; done");
    for mode in ["600", "640", "604"] {
        bed.sh(&format!("find mnt -type f | xargs chmod {mode}"));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    // Observed: 38 MiB. Another test covers the metadata cache.
    assert!(most < 96 << 10, "{most} KiB were resident");
    bed.uxfs(&["umount", "mnt"]).good();
    assert!(child.wait().unwrap().success());
    bed.check("a.img");
}

#[test]
fn a_signal_ends_it_cleanly() {
    for signal in ["TERM", "INT"] {
        let bed = with_dir();
        let mut child = foreground(&bed);
        std::fs::write(bed.path("mnt/file"), "content").unwrap();
        bed.sh(&format!("kill -{signal} {}", child.id()));
        assert!(child.wait().unwrap().success());
        assert!(!mounted(&bed));
        assert!(bed.uxfs(&["log", "status", "a.img"]).good().contains("clean"));
        assert_eq!(bed.uxfs(&["cat", "a.img:/file"]).good(), "content");
        bed.check("a.img");
    }
}

#[test]
fn after_a_kill_the_next_mount_recovers_and_says_so() {
    let bed = with_dir();
    let mut child = foreground(&bed);
    bed.sh("echo content >mnt/file; sync mnt/file");
    child.kill().unwrap();
    child.wait().unwrap();
    let said = bed.uxfs(&["mount", "a.img", "mnt"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("process is gone") && said.err.contains("recovered"), "{said:?}");
    assert_eq!(bed.sh("cat mnt/file"), "content\n");
    bed.uxfs(&["umount", "mnt"]).good();
    bed.check("a.img");
}

#[test]
fn as_mount_calls_it() {
    let bed = with_dir();
    symlink(env!("CARGO_BIN_EXE_uxfs"), bed.path("mount.fuse.uxfs")).unwrap();
    let said = bed.sh("./mount.fuse.uxfs a.img mnt -n -o ro,noauto,x-systemd.automount 2>&1");
    assert_eq!(said, "");
    assert!(bed.sh("touch mnt/f 2>&1 || echo refused").contains("refused"));
    assert!(bed.sh("./mount.fuse.uxfs a.img other -f").is_empty(), "-f does nothing");
    bed.uxfs(&["umount", "mnt"]).good();
}

#[test]
fn an_ordinary_user_mounts() {
    let bed = with_dir();
    let script = "uxfs=$1; cd \"$2\"; $uxfs mount a.img mnt 2>said; cat said; ls -ld mnt; \
                  $uxfs umount mnt; $uxfs log status a.img";
    let mut command = if rustix::process::geteuid().is_root() {
        bed.sh("chown -R 1000:1000 .; chmod 755 .");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    // The binary's directory is closed to other users.
    std::fs::copy(env!("CARGO_BIN_EXE_uxfs"), bed.path("uxfs")).unwrap();
    let command = command.args(["-ec", script, "sh", "./uxfs"]).arg(bed.path("."));
    let out = command.env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("clean"), "{text}");
}

/// Limit that catches a hang.
const LIMIT: Duration = Duration::from_secs(600);

/// Looks up missing names on a mount until `is_enough`; `false` at the limit.
fn asked_much(bed: &Bed, is_enough: impl Fn() -> bool) -> bool {
    let (enough, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        for asker in 0..2 {
            let (enough, dir) = (&enough, bed.path("mnt"));
            scope.spawn(move || {
                for n in 0.. {
                    assert!(!dir.join(format!("{asker}-{n}")).exists());
                    if enough.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let mut is_so = false;
        while !is_so && begun.elapsed() < LIMIT {
            is_so = is_enough();
            std::thread::sleep(Duration::from_millis(5));
        }
        enough.store(true, Ordering::Relaxed);
        is_so
    })
}

#[test]
fn processors_are_kept_awake_only_where_that_is_asked_for() {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let bed = with_dir();
    let may = File::options().write(true).open(DEVICE).is_ok();
    let told = |what: &str| {
        let status = bed.uxfs(&["status", "--json", "mnt"]).good();
        assert!(status.contains(&format!("\"awake\":\"{what}\"")), "{status}");
    };
    let is_held = |server: u32| {
        let open = std::fs::read_dir(format!("/proc/{server}/fd")).unwrap().flatten();
        open.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|file| file == Path::new(DEVICE))
    };
    // Neither by default nor with noawake.
    for options in ["rw", "awake,noawake"] {
        let mut server = serve(&bed, options);
        told("off");
        let (pid, begun) = (server.id(), Instant::now());
        asked_much(&bed, || {
            assert!(!is_held(pid), "held, with {options}");
            begun.elapsed() > Duration::from_millis(500)
        });
        bed.uxfs(&["umount", "mnt"]).good();
        assert!(server.wait().unwrap().success());
    }
    if !may {
        let refused = bed.uxfs(&["mount", "-o", "awake", "a.img", "mnt"]).bad(1);
        assert!(refused.contains("'awake'") && refused.contains(DEVICE), "{refused}");
        return;
    }
    let mut server = serve(&bed, "awake");
    told("on");
    let pid = server.id();
    assert!(asked_much(&bed, || is_held(pid)), "never held");
    let asked = Instant::now();
    while is_held(pid) {
        assert!(asked.elapsed() < LIMIT, "held, with nobody who asks");
        std::thread::sleep(Duration::from_millis(5));
    }
    bed.uxfs(&["umount", "mnt"]).good();
    assert!(server.wait().unwrap().success());
}

/// Runs in a separate mount namespace, with a `PATH` without system commands.
#[test]
fn fuseblk_works_in_a_namespace_of_its_own_and_names_what_is_missing() {
    let bed = with_dir();
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        bed.uxfs(&["mount", "-o", "fuseblk", "a.img", "mnt"]).bad(1);
        return;
    }
    let exe = env!("CARGO_BIN_EXE_uxfs");
    let path = "export PATH=/usr/bin:/bin";
    bed.sh(&format!(
        "unshare -m sh -ec '{path}; {exe} mount -o fuseblk a.img mnt; echo x >mnt/f; \
         grep -q fuseblk.uxfs /proc/self/mounts; {exe} umount mnt'"
    ));
    assert_eq!(bed.uxfs(&["cat", "a.img:/f"]).good(), "x\n");
    let hidden = |what: &str, option: &str| {
        bed.sh(&format!(
            "unshare -m sh -c '{path}; {what}; {exe} mount {option} a.img mnt' 2>said || test $? = 1"
        ));
        std::fs::read_to_string(bed.path("said")).unwrap()
    };
    let said = hidden("for d in /sbin /usr/sbin; do mount -t tmpfs none $d; done", "-o fuseblk");
    assert!(said.contains("losetup is missing") && !said.contains("no FUSE"), "{said}");
    for option in ["-o fuseblk", ""] {
        let said = hidden("mount -t tmpfs none /dev && mknod /dev/null c 1 3", option);
        assert!(said.contains("no FUSE here: /dev/fuse is missing"), "{option}: {said}");
    }
}
