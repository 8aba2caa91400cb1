//! Other processes of the machine that get a copy of the mount while the program runs, as a container does
//! that starts then. Needs root.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use uxfs_crashtest::{Outcome, Result};

use crate::rig::{plan, tested};

/// The program waits here for the other process, and writes its working directory before.
const PROGRAM: &str = "pwd > \"$OUTSIDE/started.new\"; mv \"$OUTSIDE/started.new\" \"$OUTSIDE/started\"; \
                       until [ -e \"$OUTSIDE/copied\" ]; do sleep 0.01; done; \
                       echo content > f; sync f";
/// What holds in each state.
const CHECK: &str = "! [ -s f ] || [ \"$(cat f)\" = content ]";

/// A process in a mount namespace of its own.
struct Other(Child);

impl Other {
    /// Starts it with the words that it runs there. Its namespace has a copy of each mount.
    fn start(script: &str) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("unshare runs");
        let mut byte = [0];
        child
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut byte)
            .expect("it has a namespace of its own");
        Self(child)
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tests the program while another process runs `script` with a copy of its mount. The script is given the
/// mount's directory. Returns also the process.
fn beside(script: &str) -> (Result<Outcome>, Other) {
    assert!(rustix::process::geteuid().is_root(), "a mount namespace is made by root");
    let outside = tempfile::tempdir().unwrap();
    let path = |name: &str| outside.path().join(name);
    let with = |line: &str| format!("OUTSIDE='{}'; {line}", outside.path().display());
    let mut plan = plan(&["sh", "-c", &with(PROGRAM)], Some(CHECK.into()));
    plan.count = 6;
    std::thread::scope(|scope| {
        let test = scope.spawn(|| tested(&plan));
        while !path("started").exists() {
            if test.is_finished() {
                panic!("the program did not start: {:?}", test.join().unwrap().err());
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let dir = std::fs::read_to_string(path("started")).unwrap().trim_end().to_owned();
        let other = Other::start(&format!("dir='{dir}'; {script}"));
        std::fs::write(path("copied"), "").unwrap();
        let outcome = test.join().unwrap();
        (outcome, other)
    })
}

#[test]
fn a_container_that_starts_meanwhile_is_no_process_of_the_program() {
    let (outcome, _other) = beside("echo; exec sleep 1000");
    let outcome = outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.failure.is_none() && outcome.states > 0, "{outcome}");
}

/// Each use of the volume from the other namespace is one: an open file, a working directory, mapped bytes.
#[test]
fn a_process_that_uses_the_volume_in_another_namespace_is_reported() {
    const MAPS: &str = "exec /usr/bin/python3 -BISc 'import mmap, os, sys, time\n\
                        made = os.open(sys.argv[1] + \"/m\", os.O_RDWR | os.O_CREAT)\n\
                        os.ftruncate(made, 4096)\n\
                        kept = mmap.mmap(made, 4096)\n\
                        os.close(made)\n\
                        print(flush=True)\n\
                        time.sleep(1000)' \"$dir\"";
    for script in
        ["exec 5> \"$dir/held\"; echo; exec sleep 1000", "cd \"$dir\"; echo; exec sleep 1000", MAPS]
    {
        let (outcome, _other) = beside(script);
        let error = outcome.err().unwrap_or_else(|| panic!("not found: {script}")).to_string();
        assert!(error.contains("left processes"), "{script}: {error}");
    }
}
