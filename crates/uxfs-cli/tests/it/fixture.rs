//! The fixture of the tests: a temporary directory with images and host trees, and functions that run
//! commands in it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A mount that is busy for this long is in use by a test itself.
const BUSY_LIMIT: Duration = Duration::from_secs(60);

/// A temporary directory that commands run in.
pub(crate) struct Fixture {
    dir: tempfile::TempDir,
}

/// Exit code and output of a command.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    /// Exit code; -1 for a signal.
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    fn of(out: &Output) -> Self {
        Self {
            code: out.status.code().unwrap_or(-1),
            out: out.stdout.escape_ascii_but_newlines(),
            err: out.stderr.escape_ascii_but_newlines(),
        }
    }

    /// Standard output of a command that must succeed with nothing on standard error.
    #[track_caller]
    pub(crate) fn good(self) -> String {
        assert!(self.code == 0 && self.err.is_empty(), "{self:?}");
        self.out
    }

    /// Standard error of a command that must end with this code.
    #[track_caller]
    pub(crate) fn bad(self, code: i32) -> String {
        assert!(self.code == code && !self.err.is_empty(), "{self:?}");
        self.err
    }
}

trait Escape {
    fn escape_ascii_but_newlines(&self) -> String;
}

impl Escape for Vec<u8> {
    /// Escapes everything except newlines, so that assertions are readable and exact.
    fn escape_ascii_but_newlines(&self) -> String {
        let text = |byte: &u8| match byte {
            b'\n' => "\n".to_owned(),
            b'\t' => "\t".to_owned(),
            b' '..=b'~' => char::from(*byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        self.iter().map(text).collect()
    }
}

fn run(command: &mut Command, dir: &Path) -> Ran {
    let command = command.current_dir(dir).env_clear().stdin(Stdio::null());
    let command = command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
    let out = command.env("LC_ALL", "C").env("TZ", "Asia/Kathmandu").output();
    Ran::of(&out.unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir();
        Self { dir: dir.unwrap_or_else(|error| panic!("{error}")) }
    }

    /// A directory with an empty volume `a.img`.
    pub(crate) fn with_image(options: &[&str]) -> Self {
        let fixture = Self::new();
        fixture.image("a.img", options);
        fixture
    }

    /// Makes a volume with these mkfs options.
    pub(crate) fn image(&self, name: &str, options: &[&str]) {
        let args = [&["mkfs", "-q", "-d", "size=320m"], options, &[name]].concat();
        self.uxfs(&args).good();
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn uxfs(&self, args: &[&str]) -> Ran {
        run(Command::new(env!("CARGO_BIN_EXE_uxfs")).args(args), self.dir.path())
    }

    /// Copies the command under test to a name that every user can reach. A program copies it: a file that
    /// this process writes is inherited for a moment by programs that other tests start, and is then busy.
    pub(crate) fn copy_of_the_command(&self, name: &str) {
        self.sh(&format!("cp '{}' {name}", env!("CARGO_BIN_EXE_uxfs")));
    }

    /// Unmounts, and tries again while the mount is busy: a file that a test has open is inherited for a
    /// moment by programs that other tests start, and `uxfs status` looks into every mount.
    #[track_caller]
    pub(crate) fn unmount(&self, name: &str) {
        let since = Instant::now();
        loop {
            let mut ran = self.uxfs(&["umount", name]);
            // A progress message, where the machine is slow.
            if ran.code == 0 && ran.err.trim_end().ends_with("waiting: the server is still writing")
            {
                ran.err.clear();
            }
            let busy = ["busy", "in use by"].iter().any(|words| ran.err.contains(words));
            if !busy {
                ran.good();
                return;
            }
            assert!(since.elapsed() < BUSY_LIMIT, "always in use: {ran:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        run(Command::new(args[0]).args(&args[1..]), self.dir.path())
    }

    #[track_caller]
    pub(crate) fn sh(&self, text: &str) -> String {
        run(Command::new("sh").args(["-ec", text]), self.dir.path()).good()
    }

    /// Runs bash text in which `uxfs` is the command under test. It may fail.
    pub(crate) fn bash(&self, text: &str) -> Ran {
        let text = format!("uxfs() {{ {} \"$@\"; }}\n{text}", env!("CARGO_BIN_EXE_uxfs"));
        run(Command::new("bash").args(["-c", &text]), self.dir.path())
    }

    /// Asserts that all checkers accept the image.
    #[track_caller]
    pub(crate) fn check(&self, image: &str) {
        if let Err(finding) = uxfs_oracle::both(&self.path(image)) {
            panic!("{finding}");
        }
    }

    /// Makes a tree `t` on the host with every kind of file that an ordinary user can make.
    pub(crate) fn tree(&self) {
        self.sh(
            "mkdir -p t/dir/deeper t/empty t/.hidden t/many; cd t; \
             printf hello >file; ln file hard; ln -s file link; ln -s nowhere dangling; \
             ln -s ../dir/deeper dir/up; mkfifo fifo; \
             printf start >sparse; truncate -s 3M sparse; printf end >>sparse; \
             head -c 300000 /dev/zero | tr '\\0' x >dir/big; printf '' >empty-file; \
             i=0; while [ $i -lt 150 ]; do echo $i >many/a-rather-long-name-$i; i=$((i+1)); done; \
             chmod 4755 file; chmod 1777 dir; chmod 600 dir/big; chmod 711 empty; \
             touch 'with space' 'quote'\\''s' -- -dash; \
             touch -m -d '2001-02-03 04:05:06.123456789' file dir/big; \
             touch -h -m -d '1999-12-31 23:59:59.5' link; touch -m -d '2019-01-01' dir/deeper empty; \
             setfattr -n user.note -v text file; setfattr -n user.bin -v 0x00ff01 file; \
             setfattr -n user.empty dir; \
             touch -m -d '2020-05-05 05:05:05' many dir .hidden .",
        );
        use std::ffi::OsStr;
        let odd = self.path("t").join(OsStr::from_bytes(b"bad\xff\n"));
        std::fs::write(&odd, "x").unwrap_or_else(|error| panic!("{}: {error}", odd.display()));
        // With relatime only the first read updates access times: read everything once.
        self.sh("touch -m -d '2020-05-05 05:05:05' t; sleep 0.02; find t -printf '%l' >/dev/null");
    }

    /// Makes the same tree in `a.img` under `/t`.
    pub(crate) fn tree_in_image(&self) {
        self.tree();
        self.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    }
}

/// Shell text for a new mount namespace: unmounts other tests' mounts except `keep`. Otherwise those
/// tests would wait for this namespace when they unmount.
pub(crate) fn leave_mounts(keep: &Path) -> String {
    format!(
        "grep fuse.uxfs /proc/self/mountinfo | cut -d \" \" -f 5 | grep -vxF \"{}\" | \
         while read -r other; do umount -l \"$other\"; done; ",
        keep.display()
    )
}

/// A find format with everything about a file that two file systems must agree on.
pub(crate) const EVERYTHING: &str = "%y %m %U %G %s %T@ %A@ %n %l %P\\n";
/// The same without the access time, which reading changes.
pub(crate) const UNREAD: &str = "%y %m %U %G %s %T@ %n %l %P\\n";
