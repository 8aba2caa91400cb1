use std::sync::Arc;
use uxfs::*;
fn main() {
    let path = std::env::args().nth(1).unwrap();
    let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let dev = Arc::new(disk::FileDev::open(path.as_ref(), disk::OpenMode::Write).unwrap());
    let fs = Fs::open(dev, OpenOptions::default()).unwrap();
    let t = std::time::Instant::now();
    let d = fs.create(fs.root(), b"dir", &NewInode::dir(0o755)).unwrap();
    for i in 0..n {
        fs.create(d, format!("file-{i:08}").as_bytes(), &NewInode::file(0o644)).unwrap();
    }
    eprintln!("{} creates/s", n as f64 / t.elapsed().as_secs_f64());
    let f = fs.create(fs.root(), b"data", &NewInode::file(0o600)).unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    fs.write_at(f, 0, &data).unwrap();
    fs.write_at(f, 10_000_000, &data[..5000]).unwrap();
    let mut back = vec![0; data.len()];
    assert_eq!(fs.read_at(f, 0, &mut back).unwrap(), data.len());
    assert!(back == data);
    fs.symlink(d, b"long", &vec![b'x'; 900], &NewInode::new(0o777)).unwrap();
    for i in (0..n).step_by(3) {
        fs.unlink(d, format!("file-{i:08}").as_bytes()).unwrap();
    }
    fs.truncate(f, 123_456).unwrap();
    fs.close().unwrap();
    eprintln!("total {:?}", t.elapsed());
}
