//! Hosts without space: file size limits, and space that is reserved for the log in advance.

use std::os::unix::fs::MetadataExt;

use crate::bed::Bed;

/// Bytes of the image's log.
fn log_bytes(bed: &Bed, image: &str) -> u64 {
    let text = bed.uxfs(&["info", "--json", image]).good();
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value["log_bytes"].as_u64().unwrap_or_else(|| panic!("{text}"))
}

fn stored(bed: &Bed, image: &str) -> u64 {
    std::fs::metadata(bed.path(image)).unwrap_or_else(|e| panic!("{e}")).blocks() * 512
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_not_a_signal() {
    let bed = Bed::with_image(&[]);
    bed.sh("head -c 4000000 /dev/zero | tr '\\0' s >small; head -c 240000000 /dev/zero >big");
    bed.uxfs(&["cp", "small", "a.img:/small"]).good();
    let uxfs = env!("CARGO_BIN_EXE_uxfs");
    // In blocks of 512 bytes: 280 of the image's 320 MiB.
    let limited =
        |words: &str| bed.sh(&format!("ulimit -f 573440; {uxfs} {words} 2>&1 || echo code=$?"));
    let said = limited("cp big a.img:/big");
    assert!(said.contains("code=1") && said.contains("too large"), "{said}");
    bed.uxfs(&["cp", "a.img:/small", "back"]).good();
    bed.sh("cmp small back");
    bed.uxfs(&["rm", "-f", "a.img:/big"]).good();
    bed.check("a.img");
    // A limit before the log's end is reported before anything changes.
    bed.sh("cp --sparse=always a.img b.img; cksum <b.img >before");
    let limited =
        bed.sh(&format!("ulimit -f 100000; {uxfs} mkdir b.img:/new 2>&1 || echo code=$?"));
    assert!(limited.contains("too large") && limited.contains("room for the log"), "{limited}");
    bed.sh("cksum <b.img | cmp - before");
    let made =
        bed.sh(&format!("ulimit -f 100000; {uxfs} mkfs -d size=320m c.img 2>&1 || echo code=$?"));
    assert!(made.contains("too large") && made.contains("code=1"), "{made}");
}

#[test]
fn every_way_of_making_a_volume_sets_room_aside_for_its_log() {
    let bed = Bed::with_image(&[]);
    bed.tree();
    bed.uxfs(&["import", "t", "b.img"]).good();
    bed.sh("tar -cf t.tar t");
    bed.uxfs(&["import", "--size", "400m", "t.tar", "c.img"]).good();
    bed.sh("cp --sparse=always b.img d.img");
    bed.uxfs(&["mkdir", "d.img:/new"]).good();
    for image in ["a.img", "b.img", "c.img", "d.img"] {
        let (stored, log) = (stored(&bed, image), log_bytes(&bed, image));
        assert!(
            log >= 4 << 20 && stored >= log,
            "{image}: {stored} bytes stored, the log has {log}"
        );
    }
    bed.sh("cp --sparse=always b.img e.img");
    assert!(stored(&bed, "e.img") < log_bytes(&bed, "e.img"), "a copy has holes in its log");
    bed.uxfs(&["ls", "e.img"]).good();
    assert!(stored(&bed, "e.img") < log_bytes(&bed, "e.img"), "reading allocates nothing");
}
