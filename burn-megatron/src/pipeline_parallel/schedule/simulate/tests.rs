//! Tests of the simulated times: the known bubbles, and what transfers and uneven stages cost.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{Costs, Simulation};
use crate::pipeline_parallel::schedule::{Pass, Schedule, ScheduleConfig, geometry::Tag};

fn schedule(kind: &str, num_stages: usize, num_chunks: usize, num_micro_batches: usize) -> Schedule {
    let kind = kind.parse().unwrap();
    let config = ScheduleConfig {
        kind,
        num_stages,
        num_chunks,
        num_micro_batches,
    };
    config.init().unwrap()
}

fn times(simulation: &Simulation, stage: usize) -> Vec<(Pass, usize, f64, f64)> {
    let spans = simulation.stages[stage].iter();
    spans
        .map(|span| (span.pass, span.task.micro_batch, span.start_secs, span.end_secs))
        .collect()
}

#[test]
fn tasks_wait_for_their_stage_and_for_their_message() {
    use Pass::{Backward, Forward};
    let costs = Costs {
        forward_secs: vec![1.0, 2.0],
        backward_secs: vec![3.0, 4.0],
        transfer_secs: 0.5,
    };
    let simulation = schedule("1f1b", 2, 1, 2).simulate(&costs);
    assert_eq!(
        times(&simulation, 0),
        [
            (Forward, 0, 0.0, 1.0),
            (Forward, 1, 1.0, 2.0),
            (Backward, 0, 8.0, 11.0),
            (Backward, 1, 14.0, 17.0)
        ]
    );
    assert_eq!(
        times(&simulation, 1),
        [
            (Forward, 0, 1.5, 3.5),
            (Backward, 0, 3.5, 7.5),
            (Forward, 1, 7.5, 9.5),
            (Backward, 1, 9.5, 13.5)
        ]
    );
    assert_eq!(simulation.makespan_secs(), 17.0);
    // The last stage computes for 2 (2 + 4) seconds, the first for 2 (1 + 3).
    assert_eq!(simulation.ideal_secs(), 12.0);
    assert_eq!(simulation.bubble(), 5.0 / 12.0);
}

#[test]
fn tasks_that_take_no_time_leave_no_bubble() {
    assert_eq!(
        schedule("gpipe", 3, 1, 2).simulate(&Costs::equal(3, 0.0, 0.0)).bubble(),
        0.0
    );
}

#[test]
fn forward_only_has_the_bubble_of_the_forward_passes() {
    let kind = "1f1b".parse().unwrap();
    let config = ScheduleConfig {
        kind,
        num_stages: 4,
        num_chunks: 2,
        num_micro_batches: 8,
    };
    let simulation = config.forward_only().unwrap().simulate(&Costs::equal(8, 1.0, 2.0));
    assert_eq!(simulation.bubble(), 3.0 / 16.0);
}

#[test]
#[should_panic(expected = "expected 4 backward times, one per virtual stage, got 2")]
fn costs_of_another_number_of_virtual_stages_are_refused() {
    let mut costs = Costs::equal(4, 1.0, 1.0);
    costs.backward_secs.truncate(2);
    schedule("interleaved", 2, 2, 2).simulate(&costs);
}

#[test]
#[should_panic(expected = "stage 1 stops at action 0 of 6: check the schedule")]
fn a_schedule_that_cannot_finish_is_refused() {
    let mut schedule = schedule("1f1b", 2, 1, 2);
    schedule.stages[0].clear();
    schedule.stages[1].remove(0);
    schedule.simulate(&Costs::equal(2, 1.0, 1.0));
}

proptest! {
    #[test]
    fn the_bubble_of_gpipe_and_1f1b_is_p_minus_1_over_m(
        p in 1usize..=8, m in 1usize..=32, f in 0.1f64..10.0, ratio in 0.5f64..3.0,
    ) {
        for kind in ["gpipe", "1f1b"] {
            let bubble = schedule(kind, p, 1, m).simulate(&Costs::equal(p, f, f * ratio)).bubble();
            let expected = (p - 1) as f64 / m as f64;
            prop_assert!((bubble - expected).abs() < 1e-9, "{} has {}, expected {}", kind, bubble, expected);
        }
    }

    #[test]
    fn the_interleaved_bubble_is_p_minus_1_over_v_m(
        p in 2usize..=8, v in 2usize..=4, groups in 1usize..=4, extra in 0usize..=4, f in 0.1f64..10.0,
        ratio in 0.5f64..3.0,
    ) {
        let g = p + extra;
        let m = groups * g;
        let costs = Costs::equal(p * v, f, f * ratio);
        let bubble = schedule(&format!("interleaved:{g}"), p, v, m).simulate(&costs).bubble();
        let expected = (p - 1) as f64 / (v * m) as f64;
        prop_assert!(
            (bubble - expected).abs() < 1e-9,
            "p {p} v {v} m {m} g {g}: {bubble}, expected {expected}",
        );
    }

    /// Also with groups larger than the pipeline, where messages are received before they are needed.
    #[test]
    fn waiting_at_the_receives_takes_no_longer(
        (p, v, m, g) in (2usize..=8, 2usize..=4, 1usize..=32)
            .prop_flat_map(|(p, v, m)| (Just(p), Just(v), Just(p.max(m)), p..=p.max(m)))
            .prop_filter("rule", |&(p, _, m, g)| m % g == 0 || m % g >= p),
    ) {
        let schedules = [
            schedule("1f1b", p, 1, m),
            schedule("gpipe", p, 1, m),
            schedule(&format!("interleaved:{g}"), p, v, m),
        ];
        for schedule in schedules {
            let costs = Costs::equal(schedule.num_chunks * p, 1.0, 2.0);
            prop_assert_eq!(makespan_of_lists(&schedule), schedule.simulate(&costs).makespan_secs());
        }
    }
}

/// The makespan when a stage waits at each receive: forward 1, backward 2, messages free.
fn makespan_of_lists(schedule: &Schedule) -> f64 {
    let mut positions = vec![0; schedule.num_stages()];
    let mut now = vec![0.0f64; schedule.num_stages()];
    let mut sent: HashMap<Tag, f64> = HashMap::new();
    let mut has_moved = true;
    while has_moved {
        has_moved = false;
        for stage in 0..schedule.num_stages() {
            while let Some(action) = schedule.stages[stage].get(positions[stage]) {
                for message in action.sends() {
                    sent.entry(message.tag()).or_insert(now[stage]);
                }
                let arrivals: Option<Vec<&f64>> =
                    action.recvs().iter().map(|message| sent.get(&message.tag())).collect();
                let Some(arrivals) = arrivals else {
                    break;
                };
                now[stage] = arrivals
                    .into_iter()
                    .fold(now[stage], |latest, &arrival| latest.max(arrival));
                now[stage] += match action.compute() {
                    Some((Pass::Forward, _)) => 1.0,
                    Some((Pass::Backward, _)) => 2.0,
                    None => 0.0,
                };
                positions[stage] += 1;
                has_moved = true;
            }
        }
    }
    assert!(
        positions
            .iter()
            .zip(&schedule.stages)
            .all(|(&position, list)| position == list.len())
    );
    now.into_iter().fold(0.0, f64::max)
}
