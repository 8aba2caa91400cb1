use super::*;
use uxfs_models::Description;

fn order(seed: u64) -> Vec<(u64, usize)> {
    let disk = Description::named("hdd-7200").unwrap().build(seed).unwrap();
    Sim::run(2, vec![disk], None, |sim| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let joins: Vec<_> = (0..5usize)
            .map(|client| {
                let (sim2, log) = (Arc::clone(sim), Arc::clone(&log));
                sim.start(move || {
                    for step in 0..4u64 {
                        sim2.work(Duration::from_micros(10 * (client as u64 + 1)));
                        sim2.ask(0, Request::write((client as u64) << 30 | step << 12, 4096), None);
                        log.lock().push((sim2.now().0, client));
                    }
                })
            })
            .collect();
        joins.into_iter().for_each(|join| join());
        core::mem::take(&mut *log.lock())
    })
    .unwrap()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = order(3);
    assert_eq!(first.len(), 20);
    assert_eq!(first, order(3));
}

#[test]
fn a_deadlock_and_a_panic_are_reported() {
    let stuck = Sim::run(1, vec![], None, |sim| Scheduler::sleep(&**sim, WaitKey(99), None));
    assert!(matches!(stuck, Err(SimError::Deadlock(_))));
    let panicked = Sim::run(1, vec![], None, |sim| {
        let join = sim.start(|| panic!("planted"));
        join();
    });
    assert!(matches!(panicked, Err(SimError::Panic(why)) if why == "planted"));
}

/// A thread that ends before the timeout of a wait from which it was woken is not due at that time.
#[test]
fn a_thread_that_ended_is_not_due() {
    let ended = Sim::run(1, vec![], None, |sim| {
        let (key, sim2) = (WaitKey(99), Arc::clone(sim));
        let join = sim.start(move || Scheduler::sleep(&*sim2, key, Some(Time(1_000))));
        sim.rest(Duration::from_nanos(10));
        Scheduler::wake(&**sim, key, true);
        join();
        sim.rest(Duration::from_micros(10));
        sim.now()
    });
    assert_eq!(ended.unwrap(), Time(10_010));
}
