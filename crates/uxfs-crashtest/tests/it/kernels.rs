//! The kernel's file systems in User Mode Linux: planted faults are found there, corrected programs pass, and
//! what is recorded has one order. `UXFS_FS` names another file system than ext4, `UXFS_COUNT` the states, and
//! `UXFS_MACHINE=qemu` another machine.

use std::num::NonZeroUsize;
use std::sync::Arc;

use uxfs_crashtest::{
    Explanation, Job, KernelFs, KernelLeg, Leg, Machine, Mark, Outcome, Plan, Recorder, Run, run,
};
use uxfs_testkit::Event;

use crate::planted::{Says, chosen, is_right};
use crate::rig::{SIZE, plan, planted, setting};
use crate::timeline::{page, shows_the_missing_call};

/// Planted programs whose fault shows on ext4.
const SHOWN: &[&str] = &[
    "lost_fsync",
    "lost_directory_fsync",
    "log_after_data",
    "mmap_without_msync",
    "acknowledged_too_soon",
];

/// Those that lack a call before an acknowledgement.
const DRAWN: &[&str] = &["lost_fsync", "lost_directory_fsync"];

fn leg(fs: KernelFs, options: &str) -> KernelLeg {
    leg_in(machine(), fs, options)
}

fn leg_in(machine: Machine, fs: KernelFs, options: &str) -> KernelLeg {
    let agent = vec![env!("CARGO_BIN_EXE_uxfs-crash-agent").into()];
    KernelLeg::new(fs, SIZE, options, &[machine], agent).unwrap_or_else(|error| panic!("{error}"))
}

fn machine() -> Machine {
    match std::env::var("UXFS_MACHINE").as_deref() {
        Ok("qemu") => Machine::Qemu,
        _ => Machine::Uml,
    }
}

fn fs() -> KernelFs {
    match std::env::var("UXFS_FS").as_deref() {
        Ok("xfs") => KernelFs::Xfs,
        Ok("btrfs") => KernelFs::Btrfs,
        Ok("f2fs") => KernelFs::F2fs,
        _ => KernelFs::Ext4,
    }
}

fn tested(plan: &Plan, leg: &KernelLeg) -> Outcome {
    run(plan, leg, &|_| {}).unwrap_or_else(|error| panic!("{:?}: {error}", plan.command))
}

#[test]
fn planted_faults_are_found_on_a_kernel_and_explained() {
    let leg = leg(fs(), "");
    let mut wrong = Vec::new();
    for (name, says) in chosen().filter(|(name, _)| SHOWN.contains(name)) {
        let outcome = tested(&planted(name, "bad"), &leg);
        match &outcome.failure {
            None => wrong.push(format!("{name}: not found in {outcome}")),
            Some(failure) if !is_right(failure, says) => {
                wrong.push(format!("{name}: not {says:?}:\n{failure}"));
            }
            Some(_) if DRAWN.contains(&name) => {
                let page = page(&outcome, &format!("{name}-on-a-kernel"));
                shows_the_missing_call(&outcome, &page);
            }
            Some(_) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn corrected_programs_pass_on_a_kernel() {
    let leg = leg(fs(), "");
    for (name, _) in chosen().filter(|(name, _)| SHOWN.contains(name)) {
        let mut plan = planted(name, "good");
        plan.count = usize::try_from(setting("UXFS_COUNT", 30)).unwrap();
        let outcome = tested(&plan, &leg);
        println!("{name}: {outcome}, {:.1} states a second", outcome.states_per_second());
        if let Some(failure) = &outcome.failure {
            panic!("{name}:\n{failure}");
        }
    }
}

/// A distribution's own kernel, emulated.
#[test]
fn qemu_finds_a_planted_fault_and_passes_the_corrected_program() {
    let leg = leg_in(Machine::Qemu, KernelFs::Ext4, "");
    let mut plan = planted("lost_fsync", "bad");
    (plan.count, plan.jobs) = (12, NonZeroUsize::MIN);
    let failure = tested(&plan, &leg).failure.unwrap();
    assert!(is_right(&failure, Says::Missing(&["fsync (or fdatasync) of m0"])), "{failure}");
    let mut plan = planted("lost_fsync", "good");
    (plan.count, plan.jobs) = (6, NonZeroUsize::MIN);
    let outcome = tested(&plan, &leg);
    assert!(outcome.failure.is_none() && outcome.states == 6, "{outcome}");
}

/// ext4 writes the new content before a rename replaces the old one, unless it is mounted with
/// `noauto_da_alloc`.
#[test]
fn a_rename_before_fsync_shows_on_ext4_without_auto_da_alloc() {
    let tested =
        |options| tested(&planted("rename_before_fsync", "bad"), &leg(KernelFs::Ext4, options));
    if let Some(failure) = tested("").failure {
        panic!("with auto_da_alloc:\n{failure}");
    }
    let failure = tested("noauto_da_alloc").failure.unwrap();
    assert!(
        failure.explanation.to_string().contains("of config, before new is renamed to it"),
        "{failure}"
    );
}

/// Without barriers ext4 sends no flush, so a disk with a volatile cache loses what was synced.
#[test]
fn ext4_without_barriers_loses_what_was_synced() {
    let leg = leg(KernelFs::Ext4, "nobarrier");
    let outcome = tested(&planted("lost_directory_fsync", "good"), &leg);
    let failure = outcome.failure.unwrap();
    assert!(matches!(failure.explanation, Explanation::Broken { .. }), "{failure}");
}

fn recorded(leg: &KernelLeg, line: &str) -> Run {
    let before = leg.make().unwrap();
    let recorder = Arc::new(Recorder::new(before.clone(), 1 << 30));
    let job = Job::shell(line, plan(&[], None).timeout, Arc::default());
    let ended = leg.record(&recorder, "late", &job).unwrap();
    assert_eq!(ended.how, uxfs_crashtest::How::Success, "{}", ended.output);
    recorder.finish(before)
}

/// The flushes of a run before its acknowledgement, and after it while the program ran.
fn flushes(run: &Run) -> (usize, usize) {
    let events = &run.recording.events()[run.start()..];
    let place = |wanted: Mark| events.iter().position(|event| *event == Event::Mark(wanted));
    let (ack, end) = (place(Mark::Acknowledged(1)).unwrap(), place(Mark::Ended).unwrap());
    let count = |events: &[Event<Mark>]| {
        events.iter().filter(|event| matches!(event, Event::Flush)).count()
    };
    (count(&events[..ack]), count(&events[ack..end]))
}

/// What a program acknowledges after its flush stands behind that flush, and what it acknowledges before, the
/// planted violation, before it: through the pipe, from a child, and in its output.
#[test]
fn acknowledgements_and_flushes_have_one_order() {
    let leg = leg(KernelFs::Ext4, "");
    for say in ["echo one >&$UXFS_ACK", "sh -c 'echo one >&$UXFS_ACK'"] {
        let late = recorded(&leg, &format!("echo x > f; sync f; {say}"));
        let (before, after) = flushes(&late);
        assert!(before > 0 && after == 0, "{say}: {before} {after}");
        let early = recorded(&leg, &format!("echo x > f; {say}; sync f"));
        let (before, after) = flushes(&early);
        assert!(before == 0 && after > 0, "{say}: {before} {after}");
        assert_eq!(early.acks, ["one"]);
    }
}

/// A process that left its group keeps the volume busy: what --setup wrote would be gone.
#[test]
fn a_setup_that_leaves_a_process_on_a_kernel_is_refused() {
    let leg = leg(KernelFs::Ext4, "");
    let mut plan = plan(&["test", "-e", "made"], None);
    let daemon = |how: &str, file: &str| {
        format!(
            "touch made; {how} sh -c 'exec >/dev/null 2>&1; touch /dev/shm/{file}; exec sleep 600' & \
             until [ -e /dev/shm/{file} ]; do sleep 0.01; done"
        )
    };
    plan.setup = Some(daemon("setsid", "marked"));
    let error = run(&plan, &leg, &|_| {}).err().unwrap().to_string();
    assert!(error.contains("--setup left processes"), "{error}");
    // One that hides its environment is seen by the unmount.
    plan.setup = Some(daemon("setsid env -i", "hidden"));
    let error = run(&plan, &leg, &|_| {}).err().unwrap().to_string();
    assert!(error.contains("cannot be unmounted"), "{error}");
}

/// A sync of another file system keeps nothing of this one.
#[test]
fn a_sync_of_another_file_system_is_not_taken_for_one_of_this() {
    let leg = leg(KernelFs::Ext4, "");
    let test = |place: &str| {
        let line = format!("echo x > f; sync -f {place}; echo one >&$UXFS_ACK");
        let check = "! [ -s \"$UXFS_ACKED\" ] || [ \"$(cat f)\" = x ]";
        tested(&plan(&["sh", "-c", &line], Some(check.into())), &leg)
    };
    let failure = test("/dev/shm").failure.unwrap();
    assert!(matches!(failure.explanation, Explanation::Missing(_)), "{failure}");
    assert!(test(".").failure.is_none());
}
