//! Tests of pictures of made-up recordings.

use burn_megatron::pipeline_parallel::schedule::{Costs, Pass, ScheduleConfig, ScheduleKind};
use burn_megatron::pipeline_parallel::{Activity, TimelineEvent};
use burn_megatron::topology::ParallelConfig;

use super::*;

/// What the ranks of a layout record if everything goes as simulated.
fn recording(config: ScheduleConfig, tensor_parallel_size: usize) -> Recording {
    let grid = ParallelConfig {
        tensor_parallel_size,
        pipeline_parallel_size: config.num_stages,
        sequence_parallel: false,
    };
    let grid = grid.grid(config.num_stages * tensor_parallel_size).unwrap();
    let schedule = config.init().unwrap();
    let costs = Costs::equal(config.num_stages * config.num_chunks, 0.010, 0.021).with_transfer_secs(0.001);
    let simulation = schedule.simulate(&costs);
    let ranks = (0..grid.world_size()).map(|rank| {
        let event = |activity, what: Option<(usize, usize)>, start_secs: f64, end_secs: f64| TimelineEvent {
            activity,
            step: 3,
            micro_batch: what.map(|what| what.0),
            chunk: what.map(|what| what.1),
            direction: None,
            peer: None,
            start: 2.0 + start_secs,
            end: 2.0 + end_secs,
        };
        let spans = &simulation.stages[grid.coordinates(rank).pipeline];
        let passes = spans.iter().flat_map(|span| {
            let activity = match span.pass {
                Pass::Forward => Activity::Forward,
                Pass::Backward => Activity::Backward,
            };
            let what = Some((span.task.micro_batch, span.task.chunk));
            [
                event(activity, what, span.start_secs, span.end_secs),
                event(Activity::Receive, what, span.start_secs - 0.001, span.start_secs),
            ]
        });
        let end = simulation.makespan_secs();
        let others = [
            event(Activity::Reduction, None, end, end + 0.004),
            event(Activity::Optimizer, None, end + 0.004, end + 0.011),
        ];
        passes.chain(others).collect()
    });
    Recording::new(grid, schedule, config.kind, ranks.collect()).unwrap()
}

fn interleaved() -> Recording {
    let config = ScheduleConfig {
        kind: ScheduleKind::Interleaved { group_size: None },
        num_stages: 4,
        num_chunks: 3,
        num_micro_batches: 12,
    };
    recording(config, 4)
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let start = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    tag[start..].split('"').next()
}

/// Every text with its height on the picture and where it begins and ends.
fn texts(svg: &str) -> Vec<(String, i32, (f64, f64))> {
    let texts = svg.split("<text ").skip(1).map(|text| {
        let (tag, rest) = text.split_once('>').unwrap();
        let tag = format!(" {tag}");
        let content = rest.split("</text>").next().unwrap().trim().to_owned();
        let number = |name: &str| -> f64 { attribute(&tag, name).unwrap().parse().unwrap() };
        let width = content.chars().count() as f64 * number("font-size") * 0.65;
        let x = number("x");
        let left = match attribute(&tag, "text-anchor") {
            Some("middle") => x - width / 2.0,
            _ => x,
        };
        (content, number("y") as i32, (left, left + width))
    });
    texts.collect()
}

#[test]
fn no_text_lies_on_another_or_leaves_the_picture() {
    for recording in [
        interleaved(),
        recording(
            ScheduleConfig {
                kind: ScheduleKind::OneForwardOneBackward,
                num_stages: 2,
                num_chunks: 1,
                num_micro_batches: 700,
            },
            1,
        ),
        recording(
            ScheduleConfig {
                kind: ScheduleKind::GPipe,
                num_stages: 1,
                num_chunks: 1,
                num_micro_batches: 1,
            },
            1,
        ),
    ] {
        let svg = draw(&recording).unwrap();
        let width: f64 = attribute(&svg, "width").unwrap().parse().unwrap();
        let texts = texts(&svg);
        assert!(texts.len() > 15, "{}", texts.len());
        for (number, (text, y, (left, right))) in texts.iter().enumerate() {
            assert!(
                *left >= 0.0 && *right <= width,
                "{text} from {left} to {right} of {width}"
            );
            for (other, other_y, (other_left, other_right)) in &texts[..number] {
                let is_apart = (y - other_y).abs() >= 11 || right <= other_left || left >= other_right;
                assert!(is_apart, "{text:?} overlaps {other:?} at {left}, {y}");
            }
        }
    }
}

#[test]
fn every_rank_stage_and_activity_is_named() {
    let recording = interleaved();
    let svg = draw(&recording).unwrap();
    let names: Vec<String> = texts(&svg).into_iter().map(|text| text.0).collect();
    for rank in 0..16 {
        let name = format!("rank {rank}, stage {}, tensor {}", rank / 4, rank % 4);
        assert!(names.contains(&name), "{name}");
    }
    for name in [
        "stage 3",
        "forward, chunk 2",
        "backward, chunk 0",
        "wait",
        "optimizer",
        MEASURED,
        SIMULATED,
    ] {
        assert!(names.iter().any(|text| text == name), "{name}");
    }
    // Twelve micro-batches through 3 chunks, there and back, on 16 ranks and on 4 simulated stages.
    let elevens = names.iter().filter(|text| *text == "11").count();
    assert_eq!(elevens, 6 * (16 + 4));
    assert!(names.iter().any(|text| text.contains("(p-1)/(v m) 8.3 %")), "{names:?}");
}

#[test]
fn measured_and_simulated_passes_have_the_same_scale() {
    let recording = interleaved();
    let (measured, simulated) = (measured_rows(&recording), simulated_rows(&recording));
    let scale = scale(&recording, &measured, &simulated);
    let widths = |row: &Row| -> Vec<i32> {
        let numbered = row.computed.iter().filter(|block| block.number.is_some());
        numbered
            .map(|block| scale.x(block.end_secs) - scale.x(block.start_secs))
            .collect()
    };
    let (first, of_stage) = (widths(&measured[15]), widths(&simulated[3]));
    assert_eq!(first.len(), 72);
    assert!(
        first.iter().zip(&of_stage).all(|(a, b)| (a - b).abs() <= 1),
        "{first:?} {of_stage:?}"
    );
}

#[test]
fn marks_are_round_numbers() {
    for (least, expected) in [(0.0003, 0.0005), (0.0011, 0.002), (0.6, 1.0), (1.0, 1.0), (5.1, 10.0)] {
        assert!((tick_secs(least) - expected).abs() < 1e-9 * expected, "{least}");
    }
}
