//! Trees that are deeper than a path can be long: in both directions, with few descriptors, and in
//! memory that grows with the depth and not with its square.

use crate::bed::Bed;

const DEPTH: u32 = 10_000;
/// Bytes of memory that a command may have at its peak; with the square of the depth it would be
/// thousands of millions.
const PEAK: u64 = 256 << 20;

/// Runs the command with 64 descriptors and looks at the memory it took.
#[track_caller]
fn bounded(bed: &Bed, line: &str) {
    let text = format!(
        "python3 - {} {line} <<'EOF'\n\
import resource, subprocess, sys\n\
def limit(): resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n\
ran = subprocess.run(sys.argv[1:], preexec_fn=limit, stdin=subprocess.DEVNULL, stdout=open('out', 'wb'))\n\
print(ran.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n\
EOF",
        env!("CARGO_BIN_EXE_uxfs")
    );
    let out = bed.bash(&text).good();
    let mut words = out.split_whitespace().map(|word| word.parse::<u64>().unwrap());
    let (code, peak) = (words.next().unwrap(), words.next().unwrap() * 1024);
    assert_eq!(code, 0, "{line}");
    println!("{line}: {peak} bytes at most");
    assert!(peak < PEAK, "{line}: {peak} bytes");
}

/// A chain of directories with a file in each, every tenth of which has a second name at the top.
fn make(bed: &Bed) {
    let text = format!(
        "python3 - <<'EOF'\n\
import os\n\
os.mkdir('deep'); os.mkdir('deep/names'); top = os.open('deep/names', os.O_RDONLY); os.chdir('deep')\n\
for n in range({DEPTH}):\n\
    os.close(os.open('file', os.O_WRONLY | os.O_CREAT))\n\
    if n % 10 == 0: os.link('file', str(n), dst_dir_fd=top)\n\
    os.mkdir('dd'); os.chdir('dd')\n\
open('end', 'w').write('the end')\n\
EOF"
    );
    bed.bash(&text).good();
}

#[test]
fn deep_trees_take_memory_by_depth_and_few_descriptors() {
    let bed = Bed::with_image(&[]);
    make(&bed);
    let files = u64::from(DEPTH) * 2 + u64::from(DEPTH) / 10 + 3;
    let count = |bed: &Bed| {
        let out = std::fs::read(bed.path("out")).unwrap();
        out.iter().filter(|byte| **byte == b'\n').count() as u64
    };
    bounded(&bed, "cp -a deep a.img:/");
    bounded(&bed, "find a.img:/deep");
    assert_eq!(count(&bed), files);
    bounded(&bed, "cp -a a.img:/deep back");
    // The deepest file came there and back, and names that belong to one file do.
    for dir in ["deep", "back"] {
        assert_eq!(bed.sh(&format!("find {dir} | wc -l")).trim(), files.to_string());
        assert_eq!(bed.sh(&format!("find {dir} -name end -execdir cat {{}} ';'")), "the end");
        let linked = bed.sh(&format!("find {dir}/names -links 2 | wc -l"));
        assert_eq!(linked.trim(), (DEPTH / 10).to_string());
    }
    bounded(&bed, "export a.img:/deep -o deep.tar");
    bounded(&bed, "import -q deep.tar tar.img");
    bounded(&bed, "import -q deep dir.img");
    for image in ["tar.img", "dir.img"] {
        bounded(&bed, &format!("find {image}"));
        assert_eq!(count(&bed), files, "{image}");
        bounded(&bed, &format!("check -q {image}"));
    }
    bounded(&bed, "ls -R a.img:/deep");
    bounded(&bed, "cp -a a.img:/deep tar.img:/again");
    bounded(&bed, "rm -r a.img:/deep");
    assert_eq!(bed.uxfs(&["ls", "a.img"]).good(), "");
    bed.uxfs(&["check", "-q", "a.img"]).good();
    bed.sh("rm -rf deep back");
}

#[test]
fn a_link_that_leads_upwards_is_followed_once() {
    let bed = Bed::with_image(&[]);
    bed.sh("mkdir -p t/a; echo x >t/a/x; ln -s .. t/a/up");
    let words = bed.uxfs(&["cp", "-rL", "t", "a.img:/t"]).bad(1);
    assert!(words.contains("t/a/up") && words.contains("inside itself"), "{words}");
    assert_eq!(bed.uxfs(&["cat", "a.img:/t/a/x"]).good(), "x\n");
    bed.uxfs(&["cp", "-a", "t", "a.img:/u"]).good();
    bed.uxfs(&["cp", "-rL", "a.img:/u", "v"]).bad(1);
    assert_eq!(bed.sh("cat v/a/x"), "x\n");
}
