//! The progress bar of commands that import trees.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uxfs::import::Progress;

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
