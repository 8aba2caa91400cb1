//! `uxfs quota` beside xfs_quota on a kernel's mount.

use uxfs_oracle::{Kernel, vm};

use crate::fixture::Fixture;

/// The reports of xfs_quota, as options of ours.
const REPORTS: [(&str, &[&str]); 5] = [
    ("-u -b", &["-u"]),
    ("-ugp -bi", &["-u", "-g", "-p", "-b", "-i"]),
    ("-u -bih", &["-u", "-b", "-i", "-h"]),
    ("-p -i", &["-p", "-i"]),
    ("-g -b -N", &["-g", "-N"]),
];

#[test]
fn reports_are_those_of_xfs_quota() {
    let fixture = Fixture::with_image(&[]);
    fixture.uxfs(&["quota", "on", "a.img"]).good();
    fixture.uxfs(&["quota", "limit", "-u", "a.img", "bsoft=4k", "bhard=5g", "1005"]).good();
    fixture.uxfs(&["quota", "limit", "-u", "-d", "a.img", "ihard=1000"]).good();
    let mut script = "set -e
        quota() { /job/loaded xfs_quota -x -c \"$1\" /mnt; }
        mount -t xfs -o uquota,gquota,pquota /drive/0 /mnt
        for n in 1 2 3 4 5 6; do dd if=/dev/zero of=/mnt/f$n bs=4k count=$n 2>/dev/null
        chown 100$n:200$n /mnt/f$n; done
        sync\n"
        .to_owned();
    for (theirs, _) in REPORTS {
        script += &format!("quota 'report {theirs}'\necho =====\n");
    }
    script += "umount /mnt\n";
    let machine = vm::Vm::new(Kernel::Current).drive(&fixture.path("a.img"), true);
    let machine = machine.host_program("/usr/sbin/xfs_quota").script(&script);
    let text = machine.run().unwrap_or_else(|f| panic!("{f}")).stdout;
    let text = text.replace("/mnt (/drive/0)", "a.img (a.img)");
    for ((_, ours), theirs) in REPORTS.iter().zip(text.split("=====\n")) {
        let args = [&["quota", "report", "-n"], *ours, &["a.img"]].concat();
        let shown = fixture.uxfs(&args).good();
        // A grace period of seven days began in the machine a moment ago.
        assert_eq!(shown.replace("[6 days]", "[7 days]"), theirs, "{args:?}");
    }
    let state = fixture.uxfs(&["quota", "state", "-u", "a.img"]).good();
    assert!(state.contains("Accounting: ON\n  Enforcement: ON\n"), "{state}");
    let json = fixture.uxfs(&["quota", "report", "--json", "-u", "a.img"]).good();
    assert!(json.contains("\"id\":1005,\"blocks\":{\"used_bytes\":20480,"), "{json}");
    fixture.uxfs(&["quota", "off", "-g", "a.img"]).good();
    let state = fixture.uxfs(&["quota", "state", "-g", "a.img"]).good();
    assert!(state.contains("Accounting: OFF\n"), "{state}");
    fixture.check("a.img");
}

#[test]
fn wrong_limits_are_refused() {
    let fixture = Fixture::with_image(&[]);
    let limit = |words: &[&str]| fixture.uxfs(&[&["quota", "limit"], words].concat()).bad(1);
    assert!(limit(&["-u", "a.img", "bhard=1m", "7"]).contains("not accounted"));
    fixture.uxfs(&["quota", "on", "-u", "a.img"]).good();
    assert!(limit(&["a.img", "bhard=1m", "7"]).contains("one of -u, -g and -p"));
    assert!(limit(&["-u", "a.img", "bhard=1m"]).contains("one owner"));
    assert!(limit(&["-u", "a.img", "7"]).contains("give a limit"));
    assert!(limit(&["-u", "a.img", "bsoft=2m", "bhard=1m", "7"]).contains("above the hard one"));
}
