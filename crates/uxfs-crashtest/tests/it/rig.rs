//! A crash test of a program in `tests/programs`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use uxfs_crashtest::{Outcome, Plan, Result, UxfsLeg, run};

/// A limit that only a real hang reaches.
const LONG: Duration = Duration::from_secs(600);
pub(crate) const SIZE: u64 = 256 << 20;

pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

pub(crate) fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// The system's Python, where there is one: what stands before it in `PATH` may take long to start.
pub(crate) fn python() -> &'static str {
    const SYSTEM: &str = "/usr/bin/python3";
    if Path::new(SYSTEM).exists() { SYSTEM } else { "python3" }
}

/// A plan for these words, with a check.
pub(crate) fn plan(command: &[&str], check: Option<String>) -> Plan {
    Plan {
        command: command.iter().map(Into::into).collect(),
        setup: None,
        check,
        ack: None,
        timeout: LONG,
        limit: 1 << 30,
        count: 60,
        seed: setting("UXFS_SEED", 1),
        jobs: NonZeroUsize::new(2).unwrap(),
        volume: None,
        recorded: None,
        state: None,
        stop: Arc::default(),
    }
}

/// A plan for a planted program.
pub(crate) fn planted(name: &str, how: &str) -> Plan {
    let script = program("planted.py");
    let script = script.to_str().unwrap();
    // Without the site's packages it starts sooner.
    let check = format!("{} -BIS '{script}' check {name}", python());
    plan(&[python(), "-BIS", script, "run", name, how], Some(check))
}

pub(crate) fn tested(plan: &Plan) -> Result<Outcome> {
    run(plan, &UxfsLeg::new(SIZE, "").unwrap(), &|_| {})
}
