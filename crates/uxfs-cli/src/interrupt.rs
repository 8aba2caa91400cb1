//! Handles Ctrl-C and SIGTERM in commands that create files, so that no unfinished file stays behind.
//!
//! 1. Unfinished new files ([`uxfs::new_file`]) are removed before the process ends.
//! 2. The journal keeps an existing volume consistent at every moment, so the process simply ends. A
//!    volume that is made in an existing file is marked unfinished until the end.
//! 3. A signal that the parent has set to be ignored, as nohup and background shells do, stays
//!    ignored.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use signal_hook::consts::{SIGINT, SIGTERM};
use uxfs::new_file;

use crate::address;

/// Makes SIGINT and SIGTERM end the process with a message about `image`, which `command` creates or
/// changes.
pub(crate) fn watch(command: &'static str, image: &Path) -> io::Result<()> {
    let image = image.to_owned();
    on_signal(move |signal| end(command, &image, signal))
}

/// Makes SIGINT and SIGTERM end the process with this exit code and these words. For commands that
/// create no files.
pub(crate) fn cancel(code: i32, words: String) -> io::Result<()> {
    on_signal(move |_| {
        // A failed write cannot be reported.
        let _ = io::stderr().lock().write_all(format!("\n{words}\n").as_bytes());
        std::process::exit(code)
    })
}

/// Makes SIGINT and SIGTERM call `end` and end the process.
#[cfg(target_os = "linux")]
pub(crate) fn ending(end: impl FnOnce() + Send + 'static) -> io::Result<()> {
    on_signal(move |signal| {
        end();
        std::process::exit(128 + signal)
    })
}

#[cfg(unix)]
fn on_signal(end: impl FnOnce(i32) + Send + 'static) -> io::Result<()> {
    use signal_hook::iterator::Signals;
    let caught = [SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(caught)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end(signal);
        }
    })?;
    Ok(())
}

/// Windows has no thread that waits for signals, so one looks for them.
#[cfg(not(unix))]
fn on_signal(end: impl FnOnce(i32) + Send + 'static) -> io::Result<()> {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    let mut flags = Vec::new();
    for signal in [SIGINT, SIGTERM] {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
        flags.push((signal, flag));
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        loop {
            if let Some((signal, _)) = flags.iter().find(|(_, flag)| flag.load(Ordering::Relaxed)) {
                return end(*signal);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    })?;
    Ok(())
}

fn end(command: &str, image: &Path, signal: i32) -> ! {
    let overwritten = new_file::is_overwritten(image);
    let removed: Vec<PathBuf> = new_file::remove_unfinished();
    let words = match removed.is_empty() && (address::is(image) || image.exists()) {
        true if overwritten && command == "import" => {
            format!("the volume in {} is unfinished until import runs again", image.display())
        }
        // What the command was to overwrite.
        true if matches!(command, "mkfs" | "mdrestore" | "restore" | "xfs_copy") => {
            let image = image.display();
            format!("{image} is unfinished, and holds no volume until {command} runs again")
        }
        true if command == "metadump" => format!("{} is an unfinished dump", image.display()),
        true => format!(
            "{} holds everything finished before the interruption; its volume is consistent",
            image.display()
        ),
        false => "nothing was left behind".to_owned(),
    };
    let line = format!("\nuxfs: {command}: interrupted: {words}\n");
    // A failed write cannot be reported.
    let _ = io::stderr().lock().write_all(line.as_bytes());
    std::process::exit(128 + signal)
}

/// Does this process ignore the signal?
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
