//! The initramfs of a machine: the base from the cache, then init, the guest's programs, the script and
//! the test's files.

use std::fs;
use std::io;

use super::archive::cpio;
use super::guest;
use super::machine::{Engine, Vm};

/// The first process inside.
const INIT: &[u8] = include_bytes!("../../guest/init");
/// Shell functions for every script.
const PRELUDE: &str = "step() { echo \"uxfs-step $*\" >&2; }\n";

/// The initramfs of a machine. `own` are files of the engine, by their names in `/job`.
pub(super) fn build(vm: &Vm, engine: Engine, own: &[(String, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let programs = guest::programs();
    let mut files = vec![("init".to_owned(), INIT.to_vec())];
    for name in guest::PROGRAMS {
        files.push((format!("job/{name}"), fs::read(programs.join(name))?));
    }
    files.push(("job/run".to_owned(), format!("{PRELUDE}{}", vm.script).into_bytes()));
    let given = own.iter().chain(&vm.files);
    files.extend(given.map(|(name, bytes)| (format!("job/{name}"), bytes.clone())));
    let views: Vec<_> =
        files.iter().map(|(path, bytes)| (path.clone(), bytes.as_slice())).collect();
    let mut initramfs = fs::read(vm.kernel.file(engine, "base.cpio"))?;
    initramfs.extend(cpio(&views));
    Ok(initramfs)
}
