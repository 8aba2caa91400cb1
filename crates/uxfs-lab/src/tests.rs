use uxfs_models::Description;
use crate::bed::Setup;
use crate::durability::judge;
use crate::work::fs_mark::{self, Load, Sync};

#[test]
fn try_it() {
    for disk in ["hdd-7200", "nvme", "array-bbu", "mirror-2008"] {
        let disk = Description::named(disk).unwrap();
        for (threads, files, size, sync, words) in [
            (1, 200, 4096, Sync::Each, &[][..]),
            (8, 50, 4096, Sync::Each, &[]),
            (64, 20, 4096, Sync::Each, &[]),
            (8, 50, 4096, Sync::Each, &["nobarrier"]),
            (8, 1000, 0, Sync::Never, &["nobarrier"]),
            (8, 1000, 0, Sync::Never, &["nobarrier", "nodelaylog"]),
            (8, 100, 4096, Sync::Tickets, &[]),
        ] {
            let real = std::time::Instant::now();
            let setup = Setup::new(&disk, 1).mkfs('d', "agcount=16").mount(words);
            let load = Load { threads, files, size, sync };
            let ran = setup.run(|lab| fs_mark::run(lab, load)).unwrap();
            let rate = ran.value as f64 / ran.seconds();
            let sim = real.elapsed();
            let d = judge(&ran, 8, 1);
            let log: u64 = ran.trace.writes().filter(|(_, e)| ran.log.contains(&e.at) && e.asked >= ran.begun).map(|(_, e)| e.len).sum();
            println!("{} {threads} {sync:?} {words:?}: {rate:.0}/s, p99 {:.2} ms, log B/file {:.0}, {} | {} | looked {} {:?} | {} events real {sim:?} {:?}", disk.name, ran.percentile_ms(99.0), log as f64/ ran.value as f64, d.label(), d.checked(), d.looked_for, d.problem, ran.trace.events.len(), real.elapsed());
        }
    }
}
