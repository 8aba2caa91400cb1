//! A description of the machine.

use std::fs::read_to_string;

/// The known properties.
pub(super) fn describe() -> Vec<(&'static str, String)> {
    let field = |file: &str, name: &str| {
        let all = read_to_string(file).ok()?;
        let line = all.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let mut all = Vec::new();
    if let Some(model) = field("/proc/cpuinfo", "model name") {
        all.push(("processor", model));
    }
    if let Ok(count) = std::thread::available_parallelism() {
        all.push(("processors", count.to_string()));
    }
    if let Some(memory) = field("/proc/meminfo", "MemTotal") {
        all.push(("memory", memory));
    }
    if let Ok(kernel) = read_to_string("/proc/sys/kernel/osrelease") {
        all.push(("kernel", kernel.trim().to_owned()));
    }
    all.push(("uxfs", env!("CARGO_PKG_VERSION").to_owned()));
    all
}
