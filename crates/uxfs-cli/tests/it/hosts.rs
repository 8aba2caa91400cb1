//! Hosts without space: file size limits, and space that is reserved for the log in advance.

use std::os::unix::fs::MetadataExt;

use crate::fixture::Fixture;

/// Bytes of the image's log.
fn log_bytes(fixture: &Fixture, image: &str) -> u64 {
    let text = fixture.uxfs(&["info", "--json", image]).good();
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value["log_bytes"].as_u64().unwrap_or_else(|| panic!("{text}"))
}

fn allocated_bytes(fixture: &Fixture, image: &str) -> u64 {
    std::fs::metadata(fixture.path(image)).unwrap_or_else(|e| panic!("{e}")).blocks() * 512
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_not_a_signal() {
    let fixture = Fixture::with_image(&[]);
    fixture.sh("head -c 4000000 /dev/zero | tr '\\0' s >small; head -c 240000000 /dev/zero >big");
    fixture.uxfs(&["cp", "small", "a.img:/small"]).good();
    let uxfs = env!("CARGO_BIN_EXE_uxfs");
    // In blocks of 512 bytes: 280 of the image's 320 MiB.
    let limited =
        |words: &str| fixture.sh(&format!("ulimit -f 573440; {uxfs} {words} 2>&1 || echo code=$?"));
    let said = limited("cp big a.img:/big");
    assert!(said.contains("code=1") && said.contains("too large"), "{said}");
    fixture.uxfs(&["cp", "a.img:/small", "back"]).good();
    fixture.sh("cmp small back");
    fixture.uxfs(&["rm", "-f", "a.img:/big"]).good();
    fixture.check("a.img");
    // A limit before the log's end is reported before anything changes.
    fixture.sh("cp --sparse=always a.img b.img; cksum <b.img >before");
    let limited =
        fixture.sh(&format!("ulimit -f 100000; {uxfs} mkdir b.img:/new 2>&1 || echo code=$?"));
    assert!(limited.contains("too large") && limited.contains("room for the log"), "{limited}");
    fixture.sh("cksum <b.img | cmp - before");
    let made = fixture
        .sh(&format!("ulimit -f 100000; {uxfs} mkfs -d size=320m c.img 2>&1 || echo code=$?"));
    assert!(made.contains("too large") && made.contains("code=1"), "{made}");
}

#[test]
fn every_way_of_making_a_volume_sets_room_aside_for_its_log() {
    let fixture = Fixture::with_image(&[]);
    fixture.tree();
    fixture.uxfs(&["import", "t", "b.img"]).good();
    fixture.sh("tar -cf t.tar t");
    fixture.uxfs(&["import", "--size", "400m", "t.tar", "c.img"]).good();
    fixture.sh("cp --sparse=always b.img d.img");
    fixture.uxfs(&["mkdir", "d.img:/new"]).good();
    for image in ["a.img", "b.img", "c.img", "d.img"] {
        let (allocated_bytes, log) = (allocated_bytes(&fixture, image), log_bytes(&fixture, image));
        assert!(
            log >= 4 << 20 && allocated_bytes >= log,
            "{image}: {allocated_bytes} bytes allocated_bytes, the log has {log}"
        );
    }
    fixture.sh("cp --sparse=always b.img e.img");
    assert!(
        allocated_bytes(&fixture, "e.img") < log_bytes(&fixture, "e.img"),
        "a copy has holes in its log"
    );
    fixture.uxfs(&["ls", "e.img"]).good();
    assert!(
        allocated_bytes(&fixture, "e.img") < log_bytes(&fixture, "e.img"),
        "reading allocates nothing"
    );
}
