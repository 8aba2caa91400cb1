//! The progress bars of commands that import trees, and that write and restore dumps.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uxfs::import::Progress;
use uxfs_metadump::DumpProgress;

/// A progress bar on standard error.
pub(crate) struct Bar {
    bar: ProgressBar,
}

const KNOWN: &str = "{wide_bar} {percent:>3}% {bytes}/{total_bytes} {bytes_per_sec} {msg}";
const UNKNOWN: &str = "{spinner} {bytes} {bytes_per_sec} {elapsed} {msg}";

impl Bar {
    /// Runs `work`, and shows its progress if standard error is a terminal and `quiet` is not set.
    pub(crate) fn during<T>(quiet: bool, work: impl FnOnce(&mut dyn FnMut(Progress)) -> T) -> T {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(Self::new);
        let result = work(&mut |progress| {
            if let Some(bar) = &bar {
                bar.show(progress);
            }
        });
        if let Some(bar) = bar {
            bar.bar.finish_and_clear();
        }
        result
    }

    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        let bar = Self { bar };
        bar.style(UNKNOWN);
        bar.bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }

    fn style(&self, template: &str) {
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
    }

    fn show(&self, progress: Progress) {
        if let Some(total) = progress.total
            && self.bar.length() != Some(total)
        {
            self.bar.set_length(total);
            self.style(KNOWN);
        }
        self.bar.set_position(progress.read);
        self.bar.set_message(format!("{} files", progress.files));
    }
}

/// A progress bar of a dump that is written: its inodes.
pub(crate) struct Dump(Option<ProgressBar>);

const INODES: &str = "{wide_bar} {percent:>3}% {msg}";

impl Dump {
    /// Runs `work`, with a bar as [`Bar::during`].
    pub(crate) fn during<T>(quiet: bool, work: impl FnOnce(&Self) -> T) -> T {
        let bar = Self(shown(quiet).then(|| new_bar(INODES)));
        let result = work(&bar);
        finish(bar.0);
        result
    }

    /// Shows how far the dump is.
    pub(crate) fn show(&self, progress: DumpProgress) {
        let Some(bar) = &self.0 else { return };
        match progress {
            DumpProgress::Inodes { done, total, ag, ags } => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(format!("{done} of {total} inodes, group {ag} of {ags}"));
            }
            DumpProgress::Log | DumpProgress::CleanLog => bar.set_message("the log"),
            _ => {}
        }
    }

    /// Runs `print` while no bar is shown.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        match &self.0 {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

/// A progress bar of what is read from a file or pipe of any length.
pub(crate) struct Bytes(Option<ProgressBar>);

impl Bytes {
    /// Runs `work`, with a bar as [`Bar::during`].
    pub(crate) fn during<T>(quiet: bool, work: impl FnOnce(&Self) -> T) -> T {
        let bar = Self(shown(quiet).then(|| new_bar(UNKNOWN)));
        let result = work(&bar);
        finish(bar.0);
        result
    }

    /// Shows how much of a known length is done.
    #[cfg(feature = "remote")]
    pub(crate) fn show_of(&self, done: u64, total: u64) {
        let Some(bar) = &self.0 else { return };
        if bar.length() != Some(total) {
            bar.set_length(total);
            if let Ok(style) = ProgressStyle::with_template(KNOWN) {
                bar.set_style(style);
            }
        }
        bar.set_position(done);
    }

    /// Shows how much is read.
    pub(crate) fn show(&self, read: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(read);
        }
    }
}

fn shown(quiet: bool) -> bool {
    !quiet && std::io::stderr().is_terminal()
}

fn new_bar(template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

fn finish(bar: Option<ProgressBar>) {
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}
