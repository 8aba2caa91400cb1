//! Checks an image: `check IMAGE [json]`.

use std::path::Path;
use std::process::ExitCode;

use uxfs_check::{CheckOptions, check};
use uxfs_disk::{FileDev, OpenMode};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(image) = args.next() else {
        eprintln!("usage: check IMAGE [json]");
        return ExitCode::from(16);
    };
    let dev = match FileDev::open(Path::new(&image), OpenMode::Read) {
        Ok(dev) => dev,
        Err(e) => {
            eprintln!("{image}: {e}");
            return ExitCode::from(8);
        }
    };
    match check(&dev, &CheckOptions::default(), &|_| {}) {
        Ok(report) if args.next().is_some() => {
            println!("{:#}", serde_json::Value::Object(report.to_json()));
            ExitCode::from(report.exit_code())
        }
        Ok(report) => {
            println!("{report}");
            ExitCode::from(report.exit_code())
        }
        Err(e) => {
            eprintln!("{image}: {e}");
            ExitCode::from(e.exit_code())
        }
    }
}
