//! SIGINT and SIGTERM while a command creates something: nothing of it is left behind.
//!
//! 1. Files being created ([`uxfs::new_file`]) are removed before the process ends.
//! 2. An existing volume is consistent at every moment by its journal, so the process simply ends.
//! 3. A signal that the caller ignores, as nohup and background shells do, stays ignored.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use uxfs::new_file;

/// From now on SIGINT and SIGTERM end the command with a message about `image`, which `command`
/// creates or extends.
pub(crate) fn watch(command: &'static str, image: &Path) -> io::Result<()> {
    let heard = [SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal));
    let mut signals = Signals::new(heard)?;
    let image = image.to_owned();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            end(command, &image, signal);
        }
    })?;
    Ok(())
}

fn end(command: &str, image: &Path, signal: i32) -> ! {
    let removed: Vec<PathBuf> = new_file::remove_unfinished();
    let words = match removed.is_empty() && image.exists() {
        true => format!(
            "{}: it holds what was finished by then; a volume that was added to is whole",
            image.display()
        ),
        false => "nothing was left behind".to_owned(),
    };
    let line = format!("\nuxfs: {command}: interrupted: {words}\n");
    // There is no way to report a failure of this write.
    let _ = io::stderr().lock().write_all(line.as_bytes());
    std::process::exit(128 + signal)
}

/// Does this process ignore the signal?
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}
