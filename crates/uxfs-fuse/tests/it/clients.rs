//! Programs that work in steps, report each durable step, and check what is left after a crash:
//! `tests/clients/client.py`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// Kinds of programs, and the number of steps of each in a run of some seconds.
pub(crate) const KINDS: [(&str, usize); 5] =
    [("wal", 60), ("delete", 40), ("git", 14), ("store", 40), ("rest", 4)];

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/client.py")
}

pub(crate) struct Client {
    child: Child,
    reader: JoinHandle<()>,
}

impl Client {
    /// Starts a program in a new directory. `durable` receives the number of each durable step.
    pub(crate) fn start(
        volume: &Path,
        kind: &str,
        steps: usize,
        mut durable: impl FnMut(usize) + Send + 'static,
    ) -> Self {
        let dir = volume.join(kind);
        std::fs::create_dir(&dir).unwrap();
        let mut child = Command::new("python3")
            .arg("-B")
            .arg(script())
            .arg(dir)
            .args([kind, "do", &steps.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("python3 is needed: ./test installs it");
        let out = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                durable(line.parse().unwrap());
            }
        });
        Self { child, reader }
    }

    pub(crate) fn wait(mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        self.reader.join().unwrap();
        status
    }
}

/// Checks what a program left of which `steps` steps are durable. A program that never began is right.
pub(crate) fn check(volume: &Path, kind: &str, steps: usize) -> Result<(), String> {
    let dir = volume.join(kind);
    if !dir.exists() {
        return if steps == 0 { Ok(()) } else { Err(format!("{kind}: {steps} steps are gone")) };
    }
    let output = Command::new("python3")
        .arg("-B")
        .arg(script())
        .arg(dir)
        .args([kind, "check", &steps.to_string()])
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{kind}, {steps} steps: {}", String::from_utf8_lossy(&output.stderr)))
}
