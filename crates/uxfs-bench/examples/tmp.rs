fn main() {
    let o = uxfs_bench::creates::Options { dir: "/tmp".into(), rounds: 3, files: 100000 };
    println!("{}", uxfs_bench::creates::run_all(&o, &mut |s| eprintln!("{s}")).unwrap());
}
