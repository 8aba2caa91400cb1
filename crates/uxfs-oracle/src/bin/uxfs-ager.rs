//! `uxfs-ager DIR SEED OPS`: ages the tree below a directory; see [`uxfs_oracle::ager`].

use std::path::Path;
use std::process::ExitCode;

use uxfs_oracle::ager::Ager;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers =
        (args.get(1).and_then(|a| a.parse().ok()), args.get(2).and_then(|a| a.parse().ok()));
    let (Some(dir), (Some(seed), Some(ops))) = (args.first(), numbers) else {
        eprintln!("usage: uxfs-ager DIR SEED OPS");
        return ExitCode::from(2);
    };
    let aged = Ager::new(Path::new(dir), seed).and_then(|mut ager| {
        let result = ager.run(ops);
        eprintln!("uxfs-ager: {}", ager.report());
        result
    });
    match aged {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("uxfs-ager: seed {seed}: {e}");
            ExitCode::FAILURE
        }
    }
}
