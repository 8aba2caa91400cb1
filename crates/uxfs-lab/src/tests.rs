use crate::experiments;
use crate::plan::{How, Quiet};

#[test]
fn try_it() {
    let name = std::env::var("LAB").unwrap_or("fs-mark".into());
    let real = std::time::Instant::now();
    for name in name.split(',') {
        let mut how = How::new(7);
        how.only = std::env::var("ONLY").unwrap_or_default();
        println!("{}\n{:?}", experiments::run(name, &how, &Quiet).unwrap(), real.elapsed());
    }
}
