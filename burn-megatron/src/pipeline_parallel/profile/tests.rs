//! Tests of profiles, on made-up events and on simulated schedules.

use super::super::schedule::{ScheduleConfig, ScheduleKind};
use super::*;

fn event(activity: Activity, (step, micro_batch, chunk): (u64, usize, usize), start: f64, end: f64) -> TimelineEvent {
    TimelineEvent {
        activity,
        step,
        micro_batch: Some(micro_batch),
        chunk: Some(chunk),
        direction: None,
        peer: None,
        start,
        end,
    }
}

/// What the ranks of one pipeline record if everything goes as simulated, from `start` on.
fn recorded(config: &ScheduleConfig, costs: &Costs, start: f64) -> Vec<Vec<TimelineEvent>> {
    let simulation = config.init().unwrap().simulate(costs);
    let stages = simulation.stages.iter().map(|spans| {
        let events = spans.iter().map(|span| {
            let activity = match span.pass {
                Pass::Forward => Activity::Forward,
                Pass::Backward => Activity::Backward,
            };
            let what = (1, span.task.micro_batch, span.task.chunk);
            event(activity, what, start + span.start_secs, start + span.end_secs)
        });
        events.collect()
    });
    stages.collect()
}

#[test]
fn the_bubble_is_what_the_busiest_stage_does_not_compute() {
    let ranks = vec![
        vec![
            event(Activity::Forward, (5, 0, 0), 10.0, 12.0),
            event(Activity::Wait, (5, 0, 0), 12.0, 16.0),
            event(Activity::Backward, (5, 0, 0), 16.0, 20.0),
            // Neither is a pass.
            event(Activity::Reduction, (5, 0, 0), 20.0, 30.0),
            event(Activity::Optimizer, (5, 0, 0), 30.0, 40.0),
        ],
        vec![
            event(Activity::Wait, (5, 0, 0), 1.0, 12.0),
            event(Activity::Forward, (5, 0, 0), 12.0, 13.0),
            event(Activity::Backward, (5, 0, 0), 13.0, 15.5),
        ],
    ];
    let profile = PipelineProfile::new(&ranks, &[vec![0, 1]], 1).unwrap();
    let [step] = profile.steps[..] else {
        panic!("{profile:?}");
    };
    assert_eq!((step.step, step.start_secs, step.end_secs), (5, 10.0, 20.0));
    // Stage 0 computes 2 + 4 of the 10 seconds.
    assert_eq!(step.busiest_secs, 6.0);
    assert_eq!(profile.bubble(), 4.0 / 6.0);
    assert_eq!(profile.costs.forward_secs, [2.0, 1.0]);
    assert_eq!(profile.costs.backward_secs, [4.0, 2.5]);
    assert_eq!(profile.costs.transfer_secs, 0.0);
}

#[test]
fn a_simulated_schedule_measures_as_its_simulation() {
    let config = ScheduleConfig {
        kind: ScheduleKind::Interleaved { group_size: None },
        num_stages: 2,
        num_chunks: 2,
        num_micro_batches: 6,
    };
    let costs = Costs {
        forward_secs: vec![1.0, 1.25, 1.5, 2.0],
        backward_secs: vec![2.0, 2.5, 3.0, 4.5],
        transfer_secs: 0.0,
    };
    let profile = PipelineProfile::new(&recorded(&config, &costs, 7.0), &[vec![0, 1]], 2).unwrap();
    let simulation = config.init().unwrap().simulate(&costs);
    assert!((profile.makespan_secs() - simulation.makespan_secs()).abs() < 1e-9);
    assert!((profile.bubble() - simulation.bubble()).abs() < 1e-9);
    assert_eq!(profile.costs, costs);
    assert_eq!(profile.start_secs(), 7.0);
}

#[test]
fn equal_stages_measure_as_the_formula() {
    for kind in [ScheduleKind::GPipe, ScheduleKind::OneForwardOneBackward] {
        let config = ScheduleConfig {
            kind,
            num_stages: 4,
            num_chunks: 1,
            num_micro_batches: 8,
        };
        let events = recorded(&config, &Costs::equal(4, 1.0, 2.0), 0.0);
        let profile = PipelineProfile::new(&events, &[vec![0, 1, 2, 3]], 1).unwrap();
        assert!((profile.bubble() - 3.0 / 8.0).abs() < 1e-12, "{kind}");
    }
}

#[test]
fn every_pipeline_and_step_counts_by_itself_and_medians_are_over_all() {
    let pass = |step, start: f64, forward: f64| {
        vec![
            event(Activity::Forward, (step, 0, 0), start, start + forward),
            event(
                Activity::Backward,
                (step, 0, 0),
                start + forward + 1.0,
                start + forward + 2.0,
            ),
        ]
    };
    let both = |first: f64, second: f64| [pass(1, 0.0, first), pass(2, 100.0, second)].concat();
    // Two pipelines of one stage: ranks 0 and 2; rank 1 is in neither.
    let ranks = vec![both(1.0, 2.0), both(500.0, 500.0), both(3.0, 9.0)];
    let profile = PipelineProfile::new(&ranks, &[vec![0], vec![2]], 1).unwrap();
    let names: Vec<(u64, usize)> = profile.steps.iter().map(|step| (step.step, step.pipeline)).collect();
    assert_eq!(names, [(1, 0), (1, 1), (2, 0), (2, 1)]);
    let bubbles: Vec<f64> = profile.steps.iter().map(StepProfile::bubble).collect();
    assert_eq!(bubbles, [1.0 / 2.0, 1.0 / 4.0, 1.0 / 3.0, 1.0 / 10.0]);
    assert_eq!(profile.costs.forward_secs, [2.5]);
}

#[test]
fn a_transfer_costs_the_median_of_the_receives() {
    let mut ranks = recorded(
        &ScheduleConfig {
            kind: ScheduleKind::OneForwardOneBackward,
            num_stages: 2,
            num_chunks: 1,
            num_micro_batches: 2,
        },
        &Costs::equal(2, 1.0, 1.0),
        0.0,
    );
    for (rank, length) in [(0, 0.5), (1, 0.25), (1, 8.0)] {
        ranks[rank].push(event(Activity::Receive, (1, 0, 0), 2.0, 2.0 + length));
        ranks[rank].push(event(Activity::Send, (1, 0, 0), 2.0, 90.0));
    }
    let profile = PipelineProfile::new(&ranks, &[vec![0, 1]], 1).unwrap();
    assert_eq!(profile.costs.transfer_secs, 0.5);
}

#[test]
fn a_stage_that_recorded_nothing_is_named() {
    let ranks = vec![
        vec![
            event(Activity::Forward, (1, 0, 0), 0.0, 1.0),
            event(Activity::Backward, (1, 0, 0), 2.0, 3.0),
        ],
        vec![event(Activity::Forward, (1, 0, 0), 1.0, 2.0)],
    ];
    let error = PipelineProfile::new(&ranks, &[vec![0, 1]], 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "no backward pass of virtual stage 1 was recorded on ranks [1]: expected at least one"
    );
}
