//! `import` and `export`, tested against `tar`.

use crate::bed::{Bed, EVERYTHING, UNREAD};

fn told(bed: &Bed, dir: &str) -> String {
    bed.sh(&format!(
        "cd {dir}; find . ! -name . -printf '{UNREAD}' | awk '{{ if ($1==\"d\") $5=\"-\"; print }}' | LC_ALL=C sort; \
         find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; getfattr -hRd -m - . | cat; getfacl -R . | cat"
    ))
}

#[test]
fn tar_takes_what_export_gives() {
    let bed = Bed::with_image(&[]);
    bed.tree();
    bed.sh("setfacl -m u:1234:rw t/sparse; touch -m -d '2020-05-05' t");
    let before = told(&bed, "t");
    bed.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    bed.uxfs(&["export", "a.img:/t", "-o", "t.tar"]).good();
    bed.sh("mkdir back; tar -C back --xattrs --acls -xpf t.tar");
    assert_eq!(told(&bed, "back"), before);
    let blocks: u64 = bed.sh("stat -c %b back/sparse").trim().parse().unwrap();
    assert!(blocks < 1024, "the hole was filled: {blocks} blocks");
}

#[test]
fn export_is_the_same_each_time_and_through_a_pipe() {
    let bed = Bed::with_image(&[]);
    bed.tree_in_image();
    let exe = env!("CARGO_BIN_EXE_uxfs");
    bed.sh(&format!("{exe} export a.img | cat >one; {exe} export a.img >two; {exe} export a.img -o three; cmp one two; cmp one three"));
    // A closed pipe is not reported.
    bed.sh(&format!("{exe} export a.img 2>words | head -c 1 >byte; test ! -s words"));
    bed.sh(&format!("{exe} find a.img:/ 2>words | head -n 1 >line; test ! -s words"));
    bed.uxfs(&["export", "a.img:/t/file", "-o", "x"]).bad(1);
}

#[test]
fn import_takes_back_what_export_gives() {
    let bed = Bed::with_image(&[]);
    bed.tree_in_image();
    bed.uxfs(&["export", "a.img", "-o", "a.tar"]).good();
    bed.uxfs(&["import", "-q", "a.tar", "b.img", "--size", "320M"]).good();
    bed.check("b.img");
    bed.uxfs(&["export", "b.img", "-o", "b.tar"]).good();
    bed.sh("tar -tvf a.tar --full-time >one; tar -tvf b.tar --full-time >two; cmp one two");
    let list = |image: &str| {
        let text = bed.uxfs(&["find", &format!("{image}:/"), "-printf", EVERYTHING]).good();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(list("a.img"), list("b.img"));
}

#[test]
fn import_from_directory_stream_and_compressed() {
    let bed = Bed::new();
    bed.tree();
    let exe = env!("CARGO_BIN_EXE_uxfs");
    bed.sh("tar -C t -cf t.tar .; gzip -k t.tar; xz -k t.tar; zstd -q t.tar");
    let names = bed.sh("cd t; find . -printf '%P\\n' | LC_ALL=C sort");
    for (n, import) in [
        "import -q t n.img --headroom 20%",
        "import -q - n.img --size 400M <t.tar",
        "import -q t.tar.gz n.img",
        "import -q t.tar.xz n.img --headroom 10M",
        "import -q t.tar.zst n.img --size 400M -m rmapbt=1 -L name",
    ]
    .iter()
    .enumerate()
    {
        bed.sh(&format!("rm -f n.img; {exe} {import}"));
        bed.check("n.img");
        let found = bed.sh(&format!("{exe} find n.img:/ -printf '%P\\n' | LC_ALL=C sort"));
        assert_eq!(found, names, "{n}: {import}");
    }
    // Import into an existing image.
    bed.uxfs(&["import", "-q", "t", "n.img"]).good();
    bed.check("n.img");
}
