//! Tests of each fixed policy's definition, and of the guarantees of `auto`.

use core::time::Duration;

use super::fixed::Works;
use super::*;
use uxfs_sync::Time;

/// A time in milliseconds.
fn ms(count: u64) -> Time {
    Time(count * 1_000_000)
}

fn view(now: Time, waiting: u32, since: Time, in_flight: u32) -> View {
    View { now, waiting, since, in_flight }
}

/// Returns a policy that has seen flushes of 8 ms, shared by `callers` callers each.
fn trained(fixed: Fixed, callers: u64) -> Works {
    let mut policy = fixed.start();
    for number in 0..20 {
        let now = ms(number * 10);
        for caller in 0..callers {
            policy.arrived(&view(now, caller as u32 + 1, now, 0), caller);
        }
        policy.begun(&view(now, callers as u32, now, 0));
        let end = ms(number * 10 + 8);
        policy.ended(&view(end, 0, end, 0), Ended { number, begun: now });
        (0..callers).for_each(|caller| policy.completed(end, caller));
    }
    policy
}

/// Returns the decision for a single caller that has just arrived.
fn decide_for_one(policy: &mut Works, caller: u64, in_flight: u32) -> Decision {
    let now = ms(200);
    policy.arrived(&view(now, 1, now, in_flight), caller);
    policy.decide(&view(now, 1, now, in_flight))
}

#[test]
fn without_waiters_policies_rest() {
    for fixed in [Fixed::Own, Fixed::Greedy, Fixed::Average, Fixed::Gather(8), Fixed::Overlap(2)] {
        let mut policy = trained(fixed, 2);
        assert_eq!(policy.decide(&view(ms(200), 0, ms(200), 0)), Decision::Rest, "{fixed:?}");
    }
}

#[test]
fn own_flushes_immediately_for_each_caller() {
    let mut policy = trained(Fixed::Own, 4);
    for in_flight in [0, 1, 100] {
        assert_eq!(decide_for_one(&mut policy, 0, in_flight), Decision::Flush);
    }
}

#[test]
fn greedy_flushes_whenever_it_is_idle() {
    let mut policy = trained(Fixed::Greedy, 4);
    assert_eq!(decide_for_one(&mut policy, 0, 0), Decision::Flush);
    assert_eq!(decide_for_one(&mut policy, 1, 1), Decision::Rest);
}

#[test]
fn overlap_flushes_up_to_its_limit() {
    let mut policy = trained(Fixed::Overlap(4), 4);
    for in_flight in 0..4 {
        assert_eq!(decide_for_one(&mut policy, 0, in_flight), Decision::Flush);
    }
    assert_eq!(decide_for_one(&mut policy, 0, 4), Decision::Rest);
}

#[test]
fn average_waits_as_long_as_a_flush_takes() {
    let mut policy = trained(Fixed::Average, 1);
    assert_eq!(decide_for_one(&mut policy, 0, 0), Decision::Until(ms(208)));
    assert_eq!(policy.decide(&view(ms(207), 3, ms(200), 0)), Decision::Until(ms(208)));
    assert_eq!(policy.decide(&view(ms(208), 3, ms(200), 0)), Decision::Flush);
    assert_eq!(policy.decide(&view(ms(208), 3, ms(200), 1)), Decision::Rest);
}

#[test]
fn fixed_waits_for_its_duration() {
    let mut policy = trained(Fixed::Wait(Duration::from_micros(500)), 1);
    assert_eq!(decide_for_one(&mut policy, 0, 0), Decision::Until(Time(200_500_000)));
    assert_eq!(policy.decide(&view(Time(200_500_000), 1, ms(200), 0)), Decision::Flush);
}

#[test]
fn journal_does_not_wait_for_a_repeat_caller() {
    let mut policy = trained(Fixed::Journal, 1);
    assert_eq!(decide_for_one(&mut policy, 0, 0), Decision::Flush);
    assert_eq!(decide_for_one(&mut policy, 7, 0), Decision::Until(ms(208)));
    assert_eq!(decide_for_one(&mut policy, 7, 0), Decision::Flush);
}

#[test]
fn journal_waits_at_most_15_ms() {
    let mut policy = Fixed::Journal.start();
    for number in 0..20 {
        let (begun, end) = (ms(number * 100), ms(number * 100 + 90));
        policy.arrived(&view(begun, 1, begun, 0), number % 2);
        policy.ended(&view(end, 0, end, 0), Ended { number, begun });
    }
    let now = ms(5000);
    policy.arrived(&view(now, 1, now, 0), 8);
    assert_eq!(policy.decide(&view(now, 1, now, 0)), Decision::Until(ms(5015)));
}

#[test]
fn gather_waits_for_expected_callers() {
    let mut policy = trained(Fixed::Gather(8), 3);
    let now = ms(200);
    for caller in 0..3 {
        policy.arrived(&view(now, caller + 1, now, 0), caller.into());
        let expected = if caller < 2 { Decision::Until(ms(208)) } else { Decision::Flush };
        assert_eq!(
            policy.decide(&view(now, caller + 1, now, 0)),
            expected,
            "{} arrived",
            caller + 1
        );
    }
    // It waits for an absent caller only as long as a flush takes, and later not at all.
    assert_eq!(policy.decide(&view(ms(208), 1, now, 0)), Decision::Flush);
    let later = ms(500);
    policy.arrived(&view(later, 1, later, 0), 0);
    assert_eq!(policy.decide(&view(later, 1, later, 0)), Decision::Flush);
}

#[test]
fn gather_can_wait_longer() {
    let mut policy = trained(Fixed::Gather(16), 3);
    assert_eq!(decide_for_one(&mut policy, 0, 0), Decision::Until(ms(216)));
}

#[test]
fn names_round_trip() {
    let words = [
        "own",
        "journal",
        "average",
        "greedy",
        "gather",
        "gather:16",
        "overlap:1",
        "overlap:64",
        "fixed:1",
        "fixed:500",
        "fixed:1000000",
        "auto",
    ];
    for word in words {
        let policy: FsyncPolicy = word.parse().unwrap();
        assert_eq!(policy.to_string(), word);
    }
    assert_eq!("gather:8".parse(), Ok(FsyncPolicy::Fixed(Fixed::Gather(8))));
    let invalid = [
        "",
        "Own",
        "jbd2",
        "own:1",
        "auto:",
        "fixed",
        "fixed:",
        "fixed:0",
        "fixed:1000001",
        "fixed:+1",
        "fixed:1us",
        "gather:0",
        "gather:65",
        "overlap",
        "overlap:0",
        "overlap:65",
        "overlap:99999999999",
        "greedy ",
    ];
    for word in invalid {
        assert_eq!(word.parse::<FsyncPolicy>(), Err(UnknownPolicy), "{word}");
    }
}

/// Simulates callers in a closed loop on a serial disk, without randomness. Returns the number of
/// served requests, the longest wait, and the number of flushes.
fn closed_loop(policy: &mut dyn Policy, callers: u32, think: u64, until: Time) -> (u64, u64, u64) {
    const FLUSH: u64 = 1_000_000;
    let mut arrivals: Vec<Time> =
        (0..callers).map(|caller| Time(u64::from(caller) * 1000)).collect();
    let mut waiting: Vec<usize> = Vec::new();
    let mut flight: Option<(Time, Vec<usize>)> = None;
    let (mut now, mut alarm) = (Time(0), None);
    let (mut served, mut longest, mut flushes) = (0, 0, 0);
    while now < until {
        let next = (0..arrivals.len()).filter(|w| !waiting.contains(w));
        let next = next.filter(|w| flight.as_ref().is_none_or(|f| !f.1.contains(w)));
        let next = next.min_by_key(|caller| arrivals[*caller]);
        let end = flight.as_ref().map(|(begun, _)| Time(begun.0 + FLUSH));
        let moments = [next.map(|caller| arrivals[caller]), end, alarm];
        now = moments.into_iter().flatten().min().unwrap();
        if end == Some(now) {
            let (begun, group) = flight.take().unwrap();
            policy.ended(
                &view_at(&waiting, &arrivals, false, now),
                Ended { number: flushes - 1, begun },
            );
            for caller in group {
                policy.completed(now, caller as u64);
                longest = longest.max(now.0 - arrivals[caller].0);
                arrivals[caller] = Time(now.0 + think);
                served += 1;
            }
        } else if let Some(caller) = next.filter(|caller| arrivals[*caller] == now) {
            waiting.push(caller);
            policy.arrived(&view_at(&waiting, &arrivals, flight.is_some(), now), caller as u64);
        }
        alarm = None;
        let view = view_at(&waiting, &arrivals, flight.is_some(), now);
        match policy.decide(&view) {
            Decision::Flush if flight.is_none() && !waiting.is_empty() => {
                policy.begun(&view);
                flight = Some((now, core::mem::take(&mut waiting)));
                flushes += 1;
            }
            Decision::Until(at) => alarm = Some(at.max(Time(now.0 + 1))),
            Decision::Flush | Decision::Rest => {}
        }
    }
    (served, longest, flushes)
}

fn view_at(waiting: &[usize], arrivals: &[Time], in_flight: bool, now: Time) -> View {
    View {
        now,
        waiting: waiting.len() as u32,
        since: waiting.first().map_or(now, |caller| arrivals[*caller]),
        in_flight: in_flight.into(),
    }
}

#[test]
fn auto_does_not_delay_a_lone_caller() {
    for think in [0, 20_000, 1_000_000, 20_000_000] {
        let until = Time(2_000_000_000);
        let greedy = closed_loop(&mut Fixed::Greedy.start(), 1, think, until);
        let auto = closed_loop(&mut Auto::default(), 1, think, until);
        assert_eq!(auto, greedy, "think time {think} ns");
    }
}

#[test]
fn auto_groups_two_quick_callers() {
    // With greedy, a completed caller returns just after the next flush has begun.
    let until = Time(2_000_000_000);
    let greedy = closed_loop(&mut Fixed::Greedy.start(), 2, 20_000, until).0 as f64;
    let auto = closed_loop(&mut Auto::default(), 2, 20_000, until).0 as f64;
    assert!(auto > 1.8 * greedy, "{auto} and {greedy}");
}

#[test]
fn auto_is_deterministic() {
    let run = || closed_loop(&mut Auto::default(), 7, 300_000, Time(3_000_000_000));
    assert_eq!(run(), run());
}

/// If flushes never overlap, as with checkpoints, `auto` stops trying. It does so even if the disk's
/// flushes are alternately long and short.
#[test]
fn auto_gives_up_overlap_that_never_happens() {
    const STEP: u64 = 100_000;
    let mut auto = Auto::default();
    let mut arrivals: Vec<u64> = (0..32).map(|caller| caller * STEP).collect();
    let mut waiting: Vec<usize> = Vec::new();
    let (mut since, mut number) = (Time(0), 0);
    let mut flight: Option<(Time, u64, Vec<usize>)> = None;
    let mut tried = false;
    for now in (0..40_000).map(|step| Time(step * STEP)) {
        for (caller, arrival) in arrivals.iter_mut().enumerate() {
            if *arrival <= now.0 {
                *arrival = u64::MAX;
                if waiting.is_empty() {
                    since = now;
                }
                waiting.push(caller);
                let in_flight = u32::from(flight.is_some());
                auto.arrived(&view(now, waiting.len() as u32, since, in_flight), caller as u64);
            }
        }
        if let Some((begun, _, served)) = flight.take_if(|f| now.0 >= f.0.0 + f.1) {
            auto.ended(&view(now, waiting.len() as u32, since, 0), Ended { number, begun });
            number += 1;
            for caller in served {
                auto.completed(now, caller as u64);
                arrivals[caller] = now.0 + STEP * (5 + caller as u64 % 30);
            }
        }
        let view = view(now, waiting.len() as u32, since, u32::from(flight.is_some()));
        // The device never begins a second flush in parallel.
        if auto.decide(&view) == Decision::Flush && flight.is_none() && !waiting.is_empty() {
            auto.begun(&view);
            let length = if number % 2 == 0 { 3_000_000 } else { 9_000_000 };
            flight = Some((now, length, core::mem::take(&mut waiting)));
        }
        tried |= auto.is_trying();
    }
    assert!(tried, "auto never tried to overlap");
    assert!(!auto.is_trying(), "{auto:?}");
}
