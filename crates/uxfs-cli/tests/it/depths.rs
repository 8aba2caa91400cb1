//! Trees deeper than the longest path: copied in both directions with few descriptors, and with memory
//! that grows with the depth, not with its square.

use crate::fixture::Fixture;

const DEPTH: u64 = 10_000;
/// Limit on a command's peak memory in bytes. Memory proportional to the depth's square would be
/// several gigabytes.
const PEAK: u64 = 256 << 20;

#[track_caller]
fn python(fixture: &Fixture, program: &str, args: &str) -> String {
    std::fs::write(fixture.path("program.py"), program).expect("a file is written");
    fixture.bash(&format!("python3 program.py {args}")).good()
}

/// Runs a command with few descriptors and prints its exit code and its peak memory in KiB.
const BOUNDED: &str = "
import resource, subprocess, sys
def limit(): resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
out = open('out' if sys.argv[2] == 'find' else '/dev/null', 'wb')
ran = subprocess.run(sys.argv[1:], preexec_fn=limit, stdin=subprocess.DEVNULL, stdout=out)
print(ran.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
";

/// Makes a chain of directories with a file in each. Every tenth file has a second name at the top.
const CHAIN: &str = "
import os, sys
name, depth = sys.argv[1], int(sys.argv[2])
os.mkdir(name); os.mkdir(name + '/names'); top = os.open(name + '/names', os.O_RDONLY); os.chdir(name)
for n in range(depth):
    os.close(os.open('file', os.O_WRONLY | os.O_CREAT))
    if n % 10 == 0: os.link('file', str(n), dst_dir_fd=top)
    os.mkdir('dd'); os.chdir('dd')
open('end', 'w').write('the end')
";

/// Runs the command with 64 descriptors and checks its peak memory.
#[track_caller]
fn bounded(fixture: &Fixture, line: &str) {
    let args = format!("{} {line}", env!("CARGO_BIN_EXE_uxfs"));
    let out = python(fixture, BOUNDED, &args);
    let mut words = out.split_whitespace().map(|word| word.parse::<u64>().expect("a number"));
    let (code, peak) =
        (words.next().expect("two numbers"), words.next().expect("two numbers") * 1024);
    assert_eq!(code, 0, "{line}");
    println!("{line}: {peak} bytes at most");
    assert!(peak < PEAK, "{line}: {peak} bytes");
}

/// Number of names in a chain of this depth.
fn names(depth: u64) -> u64 {
    depth * 2 + depth / 10 + 3
}

/// Number of files that the last `find` found.
fn found(fixture: &Fixture) -> u64 {
    let out = std::fs::read(fixture.path("out")).expect("an output");
    out.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[test]
fn deep_trees_take_memory_by_depth_and_few_descriptors() {
    let fixture = Fixture::with_image(&[]);
    python(&fixture, CHAIN, &format!("deep {DEPTH}"));
    bounded(&fixture, "cp -a deep a.img:/");
    bounded(&fixture, "find a.img:/deep -printf 'x\\n'");
    assert_eq!(found(&fixture), names(DEPTH));
    bounded(&fixture, "cp -a a.img:/deep back");
    // The deepest file survives the round trip, and so do hard links.
    for dir in ["deep", "back"] {
        assert_eq!(
            fixture.sh(&format!("find {dir} -printf 'x\\n' | wc -l")).trim(),
            names(DEPTH).to_string()
        );
        assert_eq!(fixture.sh(&format!("find {dir} -name end -execdir cat {{}} ';'")), "the end");
        let linked = fixture.sh(&format!("find {dir}/names -type f -links 2 | wc -l"));
        assert_eq!(linked.trim(), (DEPTH / 10).to_string());
    }
    bounded(&fixture, "import -q deep b.img");
    bounded(&fixture, "find b.img -printf 'x\\n'");
    assert_eq!(found(&fixture), names(DEPTH));
    bounded(&fixture, "check -q b.img");
    bounded(&fixture, "ls -R b.img");
    bounded(&fixture, "cp -a a.img:/deep b.img:/again");
    bounded(&fixture, "rm -r a.img:/deep");
    assert_eq!(fixture.uxfs(&["ls", "a.img"]).good(), "");
    fixture.uxfs(&["check", "-q", "a.img"]).good();
    fixture.sh("rm -rf deep back");
}

#[test]
fn archives_hold_paths_longer_than_path_max() {
    // An archive holds the whole path of each file, so its length grows with the depth's square.
    const LEVELS: u64 = 2500;
    let fixture = Fixture::with_image(&[]);
    python(&fixture, CHAIN, &format!("deep {LEVELS}"));
    bounded(&fixture, "cp -a deep a.img:/");
    bounded(&fixture, "export a.img:/deep -o deep.tar");
    bounded(&fixture, "import -q deep.tar b.img");
    bounded(&fixture, "find b.img -printf 'x\\n'");
    assert_eq!(found(&fixture), names(LEVELS));
    fixture.uxfs(&["check", "-q", "b.img"]).good();
    fixture.sh("rm -rf deep");
}

#[test]
fn a_link_that_leads_upwards_is_followed_once() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("mkdir -p t/a; echo x >t/a/x; ln -s .. t/a/up");
    let words = fixture.uxfs(&["cp", "-rL", "t", "a.img:/t"]).bad(1);
    assert!(words.contains("t/a/up") && words.contains("inside itself"), "{words}");
    assert_eq!(fixture.uxfs(&["cat", "a.img:/t/a/x"]).good(), "x\n");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/u"]).good();
    fixture.uxfs(&["cp", "-rL", "a.img:/u", "v"]).bad(1);
    assert_eq!(fixture.sh("cat v/a/x"), "x\n");
}
