//! Imports a tar file or a directory into an image: `import SOURCE IMAGE [BYTES]`.

use uxfs::import::{ImportOptions, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(source), Some(image)) = (args.next(), args.next()) else {
        return Err("usage: import SOURCE IMAGE [BYTES]".into());
    };
    let mut options = ImportOptions::new(source, image);
    options.size = args.next().map(|bytes| bytes.parse()).transpose()?;
    let summary = run(&options, &mut |_| {})?;
    println!("{} entries, {} bytes of data", summary.entries, summary.bytes);
    Ok(())
}
