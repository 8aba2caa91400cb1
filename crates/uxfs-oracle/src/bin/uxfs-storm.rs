//! `uxfs-storm DIR SEED OPS READY`: works on a volume until the machine is gone; see
//! [`uxfs_oracle::storm`].

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers =
        (args.get(1).and_then(|a| a.parse().ok()), args.get(2).and_then(|a| a.parse().ok()));
    let (Some(dir), (Some(seed), Some(ops)), Some(ready)) = (args.first(), numbers, args.get(3))
    else {
        eprintln!("usage: uxfs-storm DIR SEED OPS READY");
        return ExitCode::from(2);
    };
    match uxfs_oracle::storm::run(Path::new(dir), seed, ops, Path::new(ready)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("uxfs-storm: seed {seed}: {e}");
            ExitCode::FAILURE
        }
    }
}
