//! `import` and `export`, tested against `tar`.

use crate::fixture::{EVERYTHING, Fixture, UNREAD};

fn describe(fixture: &Fixture, dir: &str) -> String {
    fixture.sh(&format!(
        "cd {dir}; find . ! -name . -printf '{UNREAD}' | awk '{{ if ($1==\"d\") $5=\"-\"; print }}' | LC_ALL=C sort; \
         find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; getfattr -hRd -m - . | cat; getfacl -R . | cat"
    ))
}

#[test]
fn tar_extracts_an_exported_tree() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree();
    fixture.sh("setfacl -m u:1234:rw t/sparse; touch -m -d '2020-05-05' t");
    let before = describe(&fixture, "t");
    fixture.uxfs(&["cp", "-a", "t", "a.img:/t"]).good();
    fixture.uxfs(&["export", "a.img:/t", "-o", "t.tar"]).good();
    fixture.sh("mkdir back; tar -C back --xattrs --acls -xpf t.tar");
    assert_eq!(describe(&fixture, "back"), before);
    let blocks: u64 = fixture.sh("stat -c %b back/sparse").trim().parse().unwrap();
    assert!(blocks < 1024, "the hole was filled: {blocks} blocks");
}

#[test]
fn export_is_the_same_each_time_and_through_a_pipe() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    let exe = env!("CARGO_BIN_EXE_uxfs");
    fixture.sh(&format!("{exe} export a.img | cat >one; {exe} export a.img >two; {exe} export a.img -o three; cmp one two; cmp one three"));
    // A closed pipe is not reported.
    fixture.sh(&format!("{exe} export a.img 2>words | head -c 1 >byte; test ! -s words"));
    fixture.sh(&format!("{exe} find a.img:/ 2>words | head -n 1 >line; test ! -s words"));
    fixture.uxfs(&["export", "a.img:/t/file", "-o", "x"]).bad(1);
}

#[test]
fn import_restores_an_exported_tree() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree_in_image();
    fixture.uxfs(&["export", "a.img", "-o", "a.tar"]).good();
    fixture.uxfs(&["import", "-q", "a.tar", "b.img", "--size", "320M"]).good();
    fixture.check("b.img");
    fixture.uxfs(&["export", "b.img", "-o", "b.tar"]).good();
    fixture.sh("tar -tvf a.tar --full-time >one; tar -tvf b.tar --full-time >two; cmp one two");
    let list = |image: &str| {
        let text = fixture.uxfs(&["find", &format!("{image}:/"), "-printf", EVERYTHING]).good();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(list("a.img"), list("b.img"));
}

#[test]
fn import_from_directory_stream_and_compressed() {
    let fixture = Fixture::new();
    fixture.tree();
    let exe = env!("CARGO_BIN_EXE_uxfs");
    fixture.sh("tar -C t -cf t.tar .; gzip -k t.tar; xz -k t.tar; zstd -q t.tar");
    let names = fixture.sh("cd t; find . -printf '%P\\n' | LC_ALL=C sort");
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
        fixture.sh(&format!("rm -f n.img; {exe} {import}"));
        fixture.check("n.img");
        let found = fixture.sh(&format!("{exe} find n.img:/ -printf '%P\\n' | LC_ALL=C sort"));
        assert_eq!(found, names, "{n}: {import}");
    }
    // Import into an existing image.
    fixture.uxfs(&["import", "-q", "t", "n.img"]).good();
    fixture.check("n.img");
}
