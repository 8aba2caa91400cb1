//! Addresses of network block devices in place of images, and `uxfs nbd-serve`: with qemu-nbd, qemu-img and
//! nbdkit on the other side.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use crate::fixture::Fixture;
use crate::mount_ends::until;

/// A process of a test, killed with it.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(fixture: &Fixture, program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(args).current_dir(fixture.path(".")).stdin(Stdio::null());
        let said = std::fs::File::create(fixture.path("said")).expect("a file");
        Self(command.stderr(said).spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }

    /// Sends SIGTERM and returns the exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        let sent = Command::new("kill").arg(self.0.id().to_string()).status();
        assert!(sent.expect("kill starts").success());
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a server answers on `nbd.sock`.
fn listening(fixture: &Fixture) {
    until("listening", || UnixStream::connect(fixture.path("nbd.sock")).is_ok());
}

fn qemu_nbd(fixture: &Fixture, extra: &[&str]) -> Process {
    let args = ["--format=raw", "--persistent", "--shared=8", "--export-name=v", "--socket"];
    let socket = fixture.path("nbd.sock").display().to_string();
    let args = [&args[..], &[&socket], extra, &["a.img"]].concat();
    let process = Process::start(fixture, "qemu-nbd", &args);
    listening(fixture);
    process
}

/// `a.img` behind qemu-nbd. The socket is relative, as the directory of the commands is the fixture's.
const AT: &str = "nbd+unix:///v?socket=nbd.sock";

fn inside(path: &str) -> String {
    format!("{AT}:{path}")
}

/// The text with one space between words: a longer name moves columns.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn commands_take_an_address_in_place_of_an_image() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    let wanted = |args: &[&str]| fixture.uxfs(args).good();
    let direct = [
        wanted(&["ls", "-lR", "a.img:/t/dir"]).replace("a.img:", ""),
        wanted(&["cat", "a.img:/t/file"]),
        wanted(&["find", "a.img:/t", "-name", "a-rather*", "-printf", "%P\n"]),
        words(&wanted(&["info", "a.img"]).replace("a.img", AT)),
        wanted(&["check", "a.img"]),
    ];
    let server = qemu_nbd(&fixture, &[]);
    let far = [
        wanted(&["ls", "-lR", &inside("/t/dir")]).replace(&format!("{AT}:"), ""),
        wanted(&["cat", &inside("/t/file")]),
        wanted(&["find", &inside("/t"), "-name", "a-rather*", "-printf", "%P\n"]),
        words(&wanted(&["info", AT])),
        wanted(&["check", AT]),
    ];
    assert_eq!(far, direct);
    // Patterns, several arguments on one device, changes, and copies both ways.
    assert_eq!(wanted(&["cat", &inside("/t/fil?"), &inside("/t/hard")]), "hellohello");
    wanted(&["mkdir", &inside("/new")]);
    wanted(&["cp", "-a", "t/dir", &inside("/new/")]);
    wanted(&["cp", "-a", &inside("/new/dir"), "back"]);
    fixture.sh("diff -r --no-dereference t/dir back");
    wanted(&["df", AT]);
    wanted(&["export", "-o", "tree.tar", &inside("/new")]);
    fixture.sh("tar -tf tree.tar | grep -q dir/big");
    drop(server);
    fixture.check("a.img");
    assert_eq!(wanted(&["ls", "a.img:/new"]), "dir\n");
}

#[test]
fn errors_of_addresses_say_what_to_do() {
    let fixture = Fixture::with_image(&[]);
    let said = |args: &[&str], code| fixture.uxfs(args).bad(code);
    let gone = said(&["cat", &inside("/x")], 1);
    assert!(gone.contains("No such file") || gone.contains("no such file"), "{gone}");
    let _server = qemu_nbd(&fixture, &["--read-only"]);
    assert!(said(&["mkdir", &inside("/x")], 1).contains("reading only"));
    assert!(said(&["cat", &inside("/x")], 1).contains("x: no such file"));
    let other = said(&["ls", "nbd+unix:///w?socket=nbd.sock"], 2);
    assert!(other.contains("no such export"), "{other}");
    let wrong = said(&["ls", "nbd+unix:///v?sock=nbd.sock"], 2);
    assert!(wrong.contains("'sock' means nothing"), "{wrong}");
    assert!(said(&["import", "t", AT], 1).contains("uxfs mkfs"));
    assert!(said(&["resize", AT, "1G"], 1).contains("where it lies"));
}

#[test]
fn mkfs_makes_a_volume_on_an_export() {
    let fixture = Fixture::new();
    fixture.sh("truncate -s 400M a.img");
    let server = qemu_nbd(&fixture, &["--discard=unmap", "--detect-zeroes=unmap"]);
    fixture.uxfs(&["mkfs", "-q", AT]).good();
    let again = fixture.uxfs(&["mkfs", "-q", AT]).bad(1);
    assert!(again.contains("existing filesystem"), "{again}");
    fixture.uxfs(&["mkfs", "-q", "-f", "-L", "far", AT]).good();
    drop(server);
    fixture.check("a.img");
    assert!(fixture.uxfs(&["label", "a.img"]).good().contains("far"));
}

#[test]
fn a_mount_outlives_its_server() {
    let fixture = Fixture::with_image(&[]);
    std::fs::create_dir(fixture.path("mnt")).expect("a directory");
    let mut server = qemu_nbd(&fixture, &[]);
    fixture.uxfs(&["mount", &format!("{AT}&reconnect=300"), "mnt"]).good();
    let listed = std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    let socket = fixture.path("nbd.sock").display().to_string();
    assert!(listed.contains(&socket), "the address holds in every directory");
    for round in 0..4 {
        let mut writer = Process::start(
            &fixture,
            "bash",
            &[
                "-ec",
                &format!(
                    "for i in $(seq 40); do head -c $((i * 3000)) /dev/zero | tr '\\0' x >mnt/{round}-$i; \
             sync mnt/{round}-$i; echo $i >confirmed; done"
                ),
            ],
        );
        let _ = std::fs::remove_file(fixture.path("confirmed"));
        until("a file confirmed", || fixture.path("confirmed").exists());
        server.kill();
        server = qemu_nbd(&fixture, &[]);
        assert!(writer.0.wait().expect("it ends").success(), "round {round}");
    }
    fixture.unmount("mnt");
    drop(server);
    fixture.check("a.img");
    for round in 0..4 {
        for number in [1, 7, 40] {
            let name = format!("a.img:/{round}-{number}");
            let content = fixture.uxfs(&["cat", &name]).good();
            assert!(content.len() == number * 3000 && content.bytes().all(|byte| byte == b'x'));
        }
    }
}

#[test]
fn a_mount_whose_server_and_own_process_are_killed_keeps_what_fsync_confirmed() {
    let fixture = Fixture::with_image(&[]);
    std::fs::create_dir(fixture.path("mnt")).expect("a directory");
    let server = qemu_nbd(&fixture, &[]);
    let uxfs = env!("CARGO_BIN_EXE_uxfs");
    let mount = Process::start(&fixture, uxfs, &["mount", "-f", AT, "mnt"]);
    until("mounted", || fixture.run(&["mountpoint", "-q", "mnt"]).code == 0);
    fixture.sh("echo kept >mnt/kept; sync mnt/kept; echo loose >mnt/loose");
    mount.kill();
    server.kill();
    fixture.run(&["umount", "-l", "mnt"]);
    let server = qemu_nbd(&fixture, &[]);
    assert_eq!(fixture.uxfs(&["cat", &inside("/kept")]).good(), "kept\n");
    // Its log is replayed by the first that writes.
    fixture.uxfs(&["log", "quiesce", AT]).good();
    drop(server);
    fixture.check("a.img");
}

#[test]
fn a_server_that_fails_writes_stops_the_volume_and_loses_nothing_confirmed() {
    let fixture = Fixture::with_image(&[]);
    std::fs::create_dir(fixture.path("mnt")).expect("a directory");
    let fail = fixture.path("fail").display().to_string();
    let (file, trigger) = ("file=a.img".to_owned(), format!("error-file={fail}"));
    let nbdkit = Process::start(
        &fixture,
        "nbdkit",
        &[
            "--foreground",
            "--unix",
            "nbd.sock",
            "--filter=error",
            "file",
            &file,
            "error-pwrite=EIO",
            "error-pwrite-rate=100%",
            &trigger,
        ],
    );
    listening(&fixture);
    fixture.uxfs(&["mount", AT, "mnt"]).good();
    fixture.sh("echo kept >mnt/kept; sync mnt/kept");
    std::fs::write(&fail, "").expect("a file");
    let failed = fixture.bash("echo lost >mnt/lost && sync mnt/lost");
    assert!(failed.code != 0, "{failed:?}");
    std::fs::remove_file(&fail).expect("it is there");
    let ended = fixture.uxfs(&["umount", "mnt"]);
    assert!(ended.code == 0 || ended.err.contains("EIO") || ended.err.contains("not"), "{ended:?}");
    drop(nbdkit);
    assert_eq!(fixture.uxfs(&["cat", "a.img:/kept"]).good(), "kept\n");
    fixture.uxfs(&["log", "quiesce", "a.img"]).good();
    fixture.check("a.img");
}

/// `uxfs nbd-serve` with these arguments, ready for clients.
pub(crate) fn serve(fixture: &Fixture, args: &[&str]) -> Process {
    let all = [&["nbd-serve"], args].concat();
    let process = Process::start(fixture, env!("CARGO_BIN_EXE_uxfs"), &all);
    until("ready", || {
        std::fs::read_to_string(fixture.path("said")).is_ok_and(|text| text.ends_with("ready\n"))
    });
    process
}

#[test]
fn nbd_serve_serves_an_image_of_any_format_and_ends_cleanly() {
    let fixture = Fixture::new();
    fixture.uxfs(&["mkfs", "-q", "-d", "size=320m", "a.qcow2"]).good();
    fixture.uxfs(&["mkdir", "a.qcow2:/dir"]).good();
    let served = serve(&fixture, &["a.qcow2", "--socket", "nbd.sock", "--export", "v"]);
    let busy = fixture.uxfs(&["ls", "a.qcow2:/"]).bad(2);
    assert!(busy.contains("in use"), "{busy}");
    fixture.sh(&format!("qemu-img convert -f raw -O raw '{AT}' copy.img"));
    fixture.check("copy.img");
    assert_eq!(fixture.uxfs(&["ls", &inside("/")]).good(), "dir\n");
    fixture.uxfs(&["mkdir", &inside("/more")]).good();
    assert_eq!(served.terminate(), Some(0));
    assert!(!fixture.path("nbd.sock").exists());
    assert_eq!(fixture.uxfs(&["ls", "a.qcow2:/"]).good(), "dir\nmore\n");
    // Read-only ones share the image.
    let _one = serve(&fixture, &["a.qcow2", "--socket", "nbd.sock", "--read-only"]);
    assert_eq!(fixture.uxfs(&["ls", "a.qcow2:/"]).good(), "dir\nmore\n");
    assert_eq!(fixture.uxfs(&["ls", "nbd+unix:///?socket=nbd.sock:/"]).good(), "dir\nmore\n");
    assert!(
        fixture.uxfs(&["mkdir", "nbd+unix:///?socket=nbd.sock:/x"]).bad(1).contains("reading only")
    );
}

#[test]
fn nbd_serve_listens_on_tcp() {
    let fixture = Fixture::with_image(&[]);
    let served = serve(&fixture, &["a.img", "--bind", "127.0.0.1:0"]);
    let said = std::fs::read_to_string(fixture.path("said")).expect("its messages");
    let at = said.split("listening on ").nth(1).and_then(|text| text.lines().next());
    let at = format!("nbd://{}/", at.expect("an address"));
    fixture.uxfs(&["mkdir", &format!("{at}:/dir")]).good();
    assert_eq!(fixture.uxfs(&["ls", &format!("{at}:/")]).good(), "dir\n");
    assert_eq!(served.terminate(), Some(0));
    fixture.check("a.img");
}
