//! Tests of the simulated times: the known bubbles, and what transfers and uneven stages cost.

use std::collections::HashMap;

use proptest::prelude::*;

use super::{Costs, Simulation};
use crate::pipeline_parallel::schedule::{
    Pass, Schedule, ScheduleKind,
    geometry::Tag,
    tests::{config, schedules, sizes},
};

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
    let simulation = config("1f1b", 2, 1, 2).init().unwrap().simulate(&costs);
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
    let schedule = config("gpipe", 3, 1, 2).init().unwrap();
    assert_eq!(schedule.simulate(&Costs::equal(3, 0.0, 0.0)).bubble(), 0.0);
}

#[test]
#[should_panic(expected = "expected 4 backward times, one per virtual stage, got 2")]
fn costs_of_another_number_of_virtual_stages_are_refused() {
    let mut costs = Costs::equal(4, 1.0, 1.0);
    costs.backward_secs.truncate(2);
    config("interleaved", 2, 2, 2).init().unwrap().simulate(&costs);
}

#[test]
#[should_panic(expected = "stage 1 stops at action 0 of 6: check the schedule")]
fn a_schedule_that_cannot_finish_is_refused() {
    let mut schedule = config("1f1b", 2, 1, 2).init().unwrap();
    schedule.stages[0].clear();
    schedule.stages[1].remove(0);
    schedule.simulate(&Costs::equal(2, 1.0, 1.0));
}

proptest! {
    /// Where the last group of micro-batches is whole.
    #[test]
    fn the_bubble_is_p_minus_1_over_v_m(
        sizes in sizes(), groups in 1usize..=4, f in 0.1f64..10.0, ratio in 0.5f64..3.0,
    ) {
        let (p, v, m, g) = sizes;
        for m in [m, groups * g] {
            for (kind, schedule) in schedules((p, v, m, g)) {
                let chunks = schedule.num_chunks;
                let group = match kind {
                    Some(ScheduleKind::Interleaved { .. }) => g,
                    None if chunks > 1 => p,
                    _ => 1,
                };
                if m % group == 0 {
                    let bubble = schedule.simulate(&Costs::equal(p * chunks, f, f * ratio)).bubble();
                    let expected = (p - 1) as f64 / (chunks * m) as f64;
                    prop_assert!((bubble - expected).abs() < 1e-9, "{kind:?} has {bubble}, expected {expected}");
                }
            }
        }
    }

    /// Also with groups larger than the pipeline, where messages are received before they are needed.
    #[test]
    fn waiting_at_the_receives_takes_no_longer(sizes in sizes()) {
        for (_, schedule) in schedules(sizes) {
            let costs = Costs::equal(schedule.num_chunks * schedule.num_stages(), 1.0, 2.0);
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
