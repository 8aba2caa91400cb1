//! Servers and clients that tests share.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use uxfs_disk::BlockDev;
use uxfs_nbd::{Access, ClientOptions, Listener, NbdDev, Server, ServerOptions, Stopper, Uri};
use uxfs_oracle::program;

/// A server of ours in this process, on a Unix socket.
pub(crate) struct Ours {
    dir: TempDir,
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Ours {
    pub(crate) fn start(dev: Arc<dyn BlockDev>, options: ServerOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = Listener::unix(&dir.path().join("s"), Access::default()).unwrap();
        let server = Server::new(listener, dev, options).unwrap();
        let stopper = server.stopper();
        let thread = Some(std::thread::spawn(move || server.run()));
        Self { dir, stopper, thread }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub(crate) fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.stopper.stop();
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The address of an export on a Unix socket.
pub(crate) fn address(socket: &Path, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", socket.display())
}

/// Opens an address for writing, with little patience.
pub(crate) fn open(address: &str) -> io::Result<NbdDev> {
    let mut options = ClientOptions::default();
    options.timeout = Duration::from_secs(120);
    options.reconnect = Duration::from_secs(120);
    let uri: Uri = address.parse().unwrap();
    NbdDev::open(uri, options, true)
}

/// A process of a test, ended with it.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server of other people and waits until its socket is there.
pub(crate) fn serve(command: &mut Command, socket: &Path) -> Process {
    let mut process = Process(command.stdin(Stdio::null()).spawn().unwrap());
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        assert!(process.0.try_wait().unwrap().is_none(), "{command:?} has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    process
}

/// qemu's server of a file.
pub(crate) fn qemu_nbd(file: &Path, socket: &Path) -> Process {
    let mut command = Command::new(program("qemu-nbd", "qemu-utils"));
    // As persistent as the others: it serves the next client too, and several at once.
    command.args(["--format=raw", "--persistent", "--shared=8", "--discard=unmap"]);
    command.args(["--export-name=v", "--socket"]).arg(socket).arg(file);
    serve(&mut command, socket)
}

/// nbdkit with these arguments.
pub(crate) fn nbdkit(socket: &Path, arguments: &[&str]) -> Process {
    let mut command = Command::new(program("nbdkit", "nbdkit"));
    command.arg("--foreground").arg("--unix").arg(socket).args(arguments);
    serve(&mut command, socket)
}

/// Runs a program that has to succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let results = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {words}{results}");
    output
}
