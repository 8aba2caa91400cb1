//! `uxfs mount` and `uxfs umount`, as root or an ordinary user. An ordinary user needs fusermount3.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::fixture::Fixture;

fn mounted(fixture: &Fixture) -> bool {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = fixture.path("mnt").canonicalize().unwrap_or_else(|_| fixture.path("mnt"));
    list.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(&dir))
}

pub(crate) fn with_dir() -> Fixture {
    let fixture = Fixture::with_image(&[]);
    std::fs::create_dir(fixture.path("mnt")).unwrap();
    fixture
}

fn foreground(fixture: &Fixture) -> Child {
    serve(fixture, "rw")
}

pub(crate) fn serve(fixture: &Fixture, options: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uxfs"));
    command.args(["mount", "-f", "-o", options, "a.img", "mnt"]).current_dir(fixture.path("."));
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    while !mounted(fixture) {
        assert!(child.try_wait().unwrap().is_none(), "the mount did not come up");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child
}

#[test]
fn files_written_on_a_mount_are_in_the_image() {
    let fixture = with_dir();
    // A successful mount prints nothing.
    assert_eq!(fixture.uxfs(&["mount", "a.img", "mnt"]).good(), "");
    assert!(mounted(&fixture));
    fixture.sh("echo content >mnt/file; mkdir mnt/dir; mv mnt/file mnt/dir/");
    let busy = fixture.uxfs(&["ls", "a.img:/"]).bad(2);
    assert!(busy.contains("in use"), "{busy}");
    let again = fixture.uxfs(&["mount", "a.img", "mnt"]).bad(1);
    assert!(again.contains("in use"), "{again}");
    fixture.unmount("mnt");
    assert!(!mounted(&fixture));
    assert_eq!(fixture.uxfs(&["cat", "a.img:/dir/file"]).good(), "content\n");
    fixture.check("a.img");
    let none = fixture.uxfs(&["umount", "mnt"]).bad(1);
    assert!(none.contains("no volume is mounted here"), "{none}");
}

#[test]
fn wrong_options_are_named() {
    let fixture = with_dir();
    for (options, named) in [("nosuch", "nosuch"), ("logbufs=9", "logbufs"), ("norecovery", "ro")] {
        let said = fixture.uxfs(&["mount", "-o", options, "a.img", "mnt"]).bad(1);
        assert!(said.contains(named), "{said}");
    }
    assert!(fixture.uxfs(&["mount", "none.img", "mnt"]).bad(1).contains("no such file"));
    std::fs::write(fixture.path("text"), "no volume\n").unwrap();
    assert!(fixture.uxfs(&["mount", "text", "mnt"]).code == 1);
    assert!(!mounted(&fixture));
}

#[test]
fn status_and_sync_work_on_a_running_mount() {
    let fixture = with_dir();
    let said =
        fixture.uxfs(&["mount", "-o", "commit=60,dirty_writeback_centisecs=0", "a.img", "mnt"]);
    assert!(said.code == 0 && said.err.contains("60 seconds"), "{said:?}");
    fixture.sh("mkdir mnt/dir; echo content >mnt/dir/file");
    let status = fixture.uxfs(&["status", "mnt/dir"]).good();
    assert!(status.contains("commit_seconds         60"), "{status}");
    assert!(fixture.uxfs(&["status", "--json", "mnt"]).good().contains("\"dirty_bytes\":4096"));
    // Other tests can have mounts at the same time.
    let all = fixture.uxfs(&["status"]).out;
    assert!(all.contains(&*fixture.path("mnt").to_string_lossy()), "{all}");
    fixture.uxfs(&["sync", "mnt/dir/file"]).good();
    assert!(fixture.uxfs(&["status", "--json", "mnt"]).good().contains("\"dirty_bytes\":0"));
    let stats = fixture.uxfs(&["stats", "mnt"]).good();
    for line in ["data_writes 1", "requests_MKDIR 1", "requests_MKNOD 1"] {
        assert!(stats.lines().any(|other| other == line), "{line}: {stats}");
    }
    let json = fixture.uxfs(&["stats", "--json", "mnt"]).good();
    assert!(json.contains("\"requests_MKDIR\":1,") && json.contains("\"requests\":"), "{json}");
    let watched = fixture.uxfs(&["stats", "mnt", "--watch", "1", "--count", "1"]).good();
    assert_eq!(watched.lines().count(), 2, "{watched}");
    assert!(watched.contains(" requests "), "{watched}");
    fixture.unmount("mnt");
    assert!(fixture.uxfs(&["status", "mnt"]).code == 3, "it has ended");
    for command in ["sync", "stats"] {
        let said = fixture.uxfs(&[command, "mnt"]).bad(1);
        assert!(said.contains("no volume is mounted here"), "{command}: {said}");
    }
    assert!(fixture.uxfs(&["stats", "--watch", "1", "a.img"]).bad(1).contains("--watch"));
    fixture.check("a.img");
}

#[test]
fn blocks_are_shared_on_a_mount() {
    let fixture = with_dir();
    assert_eq!(fixture.uxfs(&["mount", "a.img", "mnt"]).code, 0);
    fixture.sh("mkdir mnt/dir; head -c 5000001 /dev/urandom >mnt/big; echo old >mnt/clone");
    let free = || {
        let status = fixture.uxfs(&["status", "mnt"]).good();
        let line = status.lines().find(|line| line.contains("blocks_free")).unwrap().to_owned();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    fixture.uxfs(&["sync", "mnt"]).good();
    let before = free();
    fixture.uxfs(&["cp", "--reflink=always", "mnt/big", "mnt/clone"]).good();
    fixture.uxfs(&["cp", "--reflink=always", "mnt/big", "mnt/dir"]).good();
    fixture.uxfs(&["sync", "mnt"]).good();
    assert!(before.saturating_sub(free()) < 100, "{before} blocks were free, {} are", free());
    fixture.sh("cmp mnt/big mnt/clone; cmp mnt/big mnt/dir/big; echo more >>mnt/clone");
    fixture.sh("! cmp -s mnt/big mnt/clone; cmp mnt/big mnt/dir/big");
    let said = fixture.uxfs(&["cp", "--reflink=always", "mnt/big", "elsewhere"]).bad(1);
    assert!(said.contains("mount"), "{said}");
    assert!(fixture.uxfs(&["cp", "mnt/big", "mnt/dir/other"]).bad(1).contains("use cp"));
    fixture.unmount("mnt");
    fixture.check("a.img");
}

#[test]
fn resident_memory_follows_cache_bytes() {
    let fixture = with_dir();
    let mut child = serve(&fixture, "cache_bytes=4m");
    fixture
        .sh("cd mnt; for d in $(seq 20); do mkdir $d; seq -f \"$d/%g\" 1000 | xargs touch; done");
    for mode in ["600", "640", "604"] {
        fixture.sh(&format!("find mnt -type f | xargs chmod {mode}"));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap();
    // Observed: 38 MiB. The metadata held in memory is counted elsewhere.
    assert!(most < 96 << 10, "{most} KiB were resident");
    fixture.unmount("mnt");
    assert!(child.wait().unwrap().success());
    fixture.check("a.img");
}

#[test]
fn a_signal_ends_the_mount_cleanly() {
    for signal in ["TERM", "INT"] {
        let fixture = with_dir();
        let mut child = foreground(&fixture);
        std::fs::write(fixture.path("mnt/file"), "content").unwrap();
        fixture.sh(&format!("kill -{signal} {}", child.id()));
        assert!(child.wait().unwrap().success());
        assert!(!mounted(&fixture));
        assert!(fixture.uxfs(&["log", "status", "a.img"]).good().contains("clean"));
        assert_eq!(fixture.uxfs(&["cat", "a.img:/file"]).good(), "content");
        fixture.check("a.img");
    }
}

#[test]
fn after_a_kill_the_next_mount_recovers_and_reports_it() {
    let fixture = with_dir();
    let mut child = foreground(&fixture);
    fixture.sh("echo content >mnt/file; sync mnt/file");
    child.kill().unwrap();
    child.wait().unwrap();
    let said = fixture.uxfs(&["mount", "a.img", "mnt"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("server has died") && said.err.contains("recovered"), "{said:?}");
    assert_eq!(fixture.sh("cat mnt/file"), "content\n");
    fixture.unmount("mnt");
    fixture.check("a.img");
}

#[test]
fn mount_8_calls_the_helper() {
    let fixture = with_dir();
    symlink(env!("CARGO_BIN_EXE_uxfs"), fixture.path("mount.fuse.uxfs")).unwrap();
    let said = fixture.sh("./mount.fuse.uxfs a.img mnt -n -o ro,noauto,x-systemd.automount 2>&1");
    assert_eq!(said, "");
    assert!(fixture.sh("touch mnt/f 2>&1 || echo refused").contains("refused"));
    assert!(fixture.sh("./mount.fuse.uxfs a.img other -f").is_empty(), "-f does nothing");
    fixture.unmount("mnt");
}

#[test]
fn an_ordinary_user_mounts() {
    let fixture = with_dir();
    let script = "uxfs=$1; cd \"$2\"; $uxfs mount a.img mnt 2>said; cat said; ls -ld mnt; \
                  $uxfs umount mnt; \
                  $uxfs log status a.img";
    let mut command = if rustix::process::geteuid().is_root() {
        fixture.sh("chown -R 1000:1000 .; chmod 755 .");
        let mut command = Command::new("setpriv");
        command.args(["--reuid=1000", "--regid=1000", "--clear-groups", "sh"]);
        command
    } else {
        Command::new("sh")
    };
    fixture.copy_of_the_command("uxfs");
    let command = command.args(["-ec", script, "sh", "./uxfs"]).arg(fixture.path("."));
    let out = command.env("LC_ALL", "C").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{text}{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("clean"), "{text}");
}

/// Limit that catches a hang.
const LIMIT: Duration = Duration::from_secs(600);

/// Looks up missing names on a mount until `is_enough`; `false` at the limit.
fn look_up_until(fixture: &Fixture, is_enough: impl Fn() -> bool) -> bool {
    let (enough, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        for asker in 0..2 {
            let (enough, dir) = (&enough, fixture.path("mnt"));
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
fn processors_are_kept_awake_only_with_awake() {
    const DEVICE: &str = "/dev/cpu_dma_latency";
    let fixture = with_dir();
    let may = File::options().write(true).open(DEVICE).is_ok();
    let status_shows = |what: &str| {
        let status = fixture.uxfs(&["status", "--json", "mnt"]).good();
        assert!(status.contains(&format!("\"awake\":\"{what}\"")), "{status}");
    };
    let is_held = |server: u32| {
        let open = std::fs::read_dir(format!("/proc/{server}/fd")).unwrap().flatten();
        open.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .any(|file| file == Path::new(DEVICE))
    };
    // Not by default, and not with noawake.
    for options in ["rw", "awake,noawake"] {
        let mut server = serve(&fixture, options);
        status_shows("off");
        let (pid, begun) = (server.id(), Instant::now());
        look_up_until(&fixture, || {
            assert!(!is_held(pid), "held, with {options}");
            begun.elapsed() > Duration::from_millis(500)
        });
        fixture.unmount("mnt");
        assert!(server.wait().unwrap().success());
    }
    if !may {
        let refused = fixture.uxfs(&["mount", "-o", "awake", "a.img", "mnt"]).bad(1);
        assert!(refused.contains("'awake'") && refused.contains(DEVICE), "{refused}");
        return;
    }
    let mut server = serve(&fixture, "awake");
    status_shows("on");
    let pid = server.id();
    assert!(look_up_until(&fixture, || is_held(pid)), "never held");
    let asked = Instant::now();
    while is_held(pid) {
        assert!(asked.elapsed() < LIMIT, "held without requests");
        std::thread::sleep(Duration::from_millis(5));
    }
    fixture.unmount("mnt");
    assert!(server.wait().unwrap().success());
}

/// Runs in a separate mount namespace, with a `PATH` without system commands.
#[test]
fn fuseblk_works_in_a_namespace_of_its_own_and_names_what_is_missing() {
    let fixture = with_dir();
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        fixture.uxfs(&["mount", "-o", "fuseblk", "a.img", "mnt"]).bad(1);
        return;
    }
    let exe = env!("CARGO_BIN_EXE_uxfs");
    let path = "export PATH=/usr/bin:/bin";
    fixture.sh(&format!(
        "unshare -m sh -ec '{path}; {exe} mount -o fuseblk a.img mnt; echo x >mnt/f; \
         grep -q fuseblk.uxfs /proc/self/mounts; {exe} umount mnt'"
    ));
    assert_eq!(fixture.uxfs(&["cat", "a.img:/f"]).good(), "x\n");
    let hidden = |what: &str, option: &str| {
        fixture.sh(&format!(
            "unshare -m sh -c '{path}; {what}; {exe} mount {option} a.img mnt' 2>said || test $? = 1"
        ));
        std::fs::read_to_string(fixture.path("said")).unwrap()
    };
    let said = hidden("for d in /sbin /usr/sbin; do mount -t tmpfs none $d; done", "-o fuseblk");
    assert!(said.contains("losetup is missing") && !said.contains("no FUSE"), "{said}");
    for option in ["-o fuseblk", ""] {
        let said = hidden("mount -t tmpfs none /dev && mknod /dev/null c 1 3", option);
        assert!(said.contains("no FUSE here: /dev/fuse is missing"), "{option}: {said}");
    }
}
