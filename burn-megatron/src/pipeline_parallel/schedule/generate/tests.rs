//! Tests of the schedules: their orders, their messages, their needs, and the sizes that have none.

use proptest::prelude::*;

use super::{Sizes, interleaved};
use crate::pipeline_parallel::schedule::{
    Action, Direction, Message, Pass, Schedule, ScheduleError, ScheduleKind, Task,
    geometry::Step,
    tests::{config, schedules, sizes},
};

/// The list of a stage, short: `F0 B0` are tasks of chunk 0, `F0.1` of chunk 1, `>F0` sends and `<F0` receives the
/// activation of micro-batch 0 (`B`: its gradient), and what is in brackets is exchanged.
fn text(schedule: &Schedule, stage: usize) -> String {
    let letter = |direction| match direction {
        Direction::Forward => 'F',
        Direction::Backward => 'B',
    };
    let message = |sign: char, message: &Message| format!("{sign}{}{}", letter(message.direction), message.micro_batch);
    let actions = schedule.stages[stage].iter().map(|action| {
        if let Some((pass, Task { micro_batch, chunk })) = action.compute() {
            let letter = if pass == Pass::Forward { 'F' } else { 'B' };
            return match chunk {
                0 => format!("{letter}{micro_batch}"),
                _ => format!("{letter}{micro_batch}.{chunk}"),
            };
        }
        let sends = action.sends().iter().map(|sent| message('>', sent));
        let all: Vec<String> = sends
            .chain(action.recvs().iter().map(|received| message('<', received)))
            .collect();
        match action {
            Action::Exchange { .. } => format!("[{}]", all.join(" ")),
            _ => all.join(" "),
        }
    });
    actions.collect::<Vec<_>>().join(" ")
}

/// The tasks of a stage alone.
fn tasks(schedule: &Schedule, stage: usize) -> String {
    let text = text(schedule, stage).replace(['[', ']'], "");
    let is_task = |word: &&str| word.starts_with(['F', 'B']);
    text.split(' ').filter(is_task).collect::<Vec<_>>().join(" ")
}

#[test]
fn gpipe_runs_all_forward_passes_first() {
    let schedule = config("gpipe", 2, 1, 3).init().unwrap();
    assert_eq!(text(&schedule, 0), "F0 >F0 F1 >F1 F2 [>F2 <B0] B0 <B1 B1 <B2 B2");
    assert_eq!(text(&schedule, 1), "<F0 F0 <F1 F1 <F2 F2 B0 >B0 B1 >B1 B2 >B2");
}

#[test]
fn one_forward_one_backward_alternates_after_its_warm_up() {
    let schedule = config("1f1b", 3, 1, 4).init().unwrap();
    assert_eq!(
        text(&schedule, 0),
        "F0 >F0 F1 >F1 F2 [>F2 <B0] B0 F3 [>F3 <B1] B1 <B2 B2 <B3 B3"
    );
    assert_eq!(
        text(&schedule, 1),
        "<F0 F0 [>F0 <F1] F1 [>F1 <B0] B0 [>B0 <F2] F2 [>F2 <B1] B1 [>B1 <F3] F3 [>F3 <B2] B2 [>B2 <B3] B3 >B3"
    );
    assert_eq!(
        text(&schedule, 2),
        "<F0 F0 B0 [>B0 <F1] F1 B1 [>B1 <F2] F2 B2 [>B2 <F3] F3 B3 >B3"
    );
}

#[test]
fn forward_passes_alone_take_each_group_through_the_chunks() {
    let schedule = config("1f1b", 1, 2, 2).forward_only().unwrap();
    assert_eq!(text(&schedule, 0), "F0 F0.1 F1 F1.1");
}

#[test]
fn the_interleaved_table_goes_group_by_group_and_chunk_by_chunk() {
    let sizes = Sizes {
        num_stages: 2,
        num_chunks: 2,
        num_micro_batches: 5,
    };
    let table = interleaved::table(sizes, 3);
    let micro_batches: Vec<usize> = table.iter().map(|task| task.micro_batch).collect();
    let chunks: Vec<usize> = table.iter().map(|task| task.chunk).collect();
    assert_eq!(micro_batches, [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]);
    assert_eq!(chunks, [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]);

    // Warm-up: 2 (2 - 0 - 1) + (2 - 1) 3 = 5 on the first stage, 3 on the last.
    let schedule = config("interleaved:3", 2, 2, 5).init().unwrap();
    assert_eq!(
        tasks(&schedule, 0),
        "F0 F1 F2 F0.1 F1.1 F2.1 B0.1 F3 B1.1 F4 B2.1 F3.1 B0 F4.1 B1 B2 B3.1 B4.1 B3 B4"
    );
    assert_eq!(
        tasks(&schedule, 1),
        "F0 F1 F2 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 F3 B0 F4 B1 F3.1 B2 F4.1 B3.1 B4.1 B3 B4"
    );
}

#[test]
fn a_group_as_large_as_the_pipeline_receives_right_before_use() {
    let schedule = config("interleaved", 2, 2, 2).init().unwrap();
    assert_eq!(
        text(&schedule, 0),
        "F0 >F0 F1 [>F1 <F0] F0.1 [>F0 <F1] F1.1 [>F1 <B0] B0.1 [>B0 <B1] B1.1 [>B1 <B0] B0 <B1 B1"
    );
}

#[test]
fn kinds_are_parsed_as_they_are_printed() {
    for text in ["gpipe", "1f1b", "interleaved", "interleaved:7"] {
        assert_eq!(text.parse::<ScheduleKind>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "GPipe",
        "interleaved:",
        "interleaved:0",
        "interleaved:-1",
        "interleaved:99999999999999999999",
    ] {
        let message = text.parse::<ScheduleKind>().unwrap_err().to_string();
        assert_eq!(
            message,
            format!(
                "unknown schedule `{text}`: expected gpipe, 1f1b, interleaved, or interleaved:G with a group size G of \
                 at least 1"
            )
        );
    }
}

#[test]
fn sizes_without_a_schedule_are_errors_with_the_nearest_valid_ones() {
    let error = |kind, p, v, m| config(kind, p, v, m).init().unwrap_err().to_string();
    assert_eq!(error("1f1b", 0, 1, 4), "num_stages must be at least 1, got 0");
    assert_eq!(error("1f1b", 2, 0, 4), "num_chunks must be at least 1, got 0");
    assert_eq!(error("1f1b", 2, 1, 0), "num_micro_batches must be at least 1, got 0");
    assert_eq!(
        error("gpipe", 2, 3, 4),
        "the gpipe schedule has 1 chunk per stage, got 3; use interleaved for several"
    );
    assert_eq!(
        error("interleaved", 4, 1, 4),
        "the interleaved schedule needs at least 2 stages and 2 chunks per stage, got 4 and 1; use 1f1b, or raise \
         both to 2 or more"
    );
    assert_eq!(
        error("interleaved", 4, 2, 3),
        "the interleaved schedule needs at least 4 micro-batches, one per stage, got 3; the nearest valid number of \
         micro-batches is 4"
    );
    let rule = "the group size of the interleaved schedule must be between the stages and the micro-batches, and the \
                micro-batches modulo the group size must be 0 or at least the stages; got";
    assert_eq!(
        error("interleaved", 4, 2, 10),
        format!(
            "{rule} group size 4, 4 stages, 10 micro-batches; the nearest valid group sizes are 5; with group size 4 \
             the nearest valid numbers of micro-batches are 8 and 12"
        )
    );
    assert_eq!(
        error("interleaved:8", 4, 2, 9),
        format!(
            "{rule} group size 8, 4 stages, 9 micro-batches; the nearest valid group sizes are 5 and 9; with group \
             size 8 the nearest valid numbers of micro-batches are 8 and 12"
        )
    );
    assert_eq!(
        error("interleaved:3", 4, 2, 8),
        format!("{rule} group size 3, 4 stages, 8 micro-batches; the nearest valid group sizes are 4")
    );
    assert_eq!(
        error("interleaved:18446744073709551615", 2, 2, 2),
        format!(
            "{rule} group size 18446744073709551615, 2 stages, 2 micro-batches; the nearest valid group sizes are 2; \
             with group size 18446744073709551615 the nearest valid numbers of micro-batches are 18446744073709551615"
        )
    );
}

#[test]
fn sizes_are_bounded_before_anything_is_allocated() {
    let message = config("1f1b", 8, 1, usize::MAX).init().unwrap_err().to_string();
    assert_eq!(
        message,
        "a schedule has at most 2097152 tasks, got 8 stages * 1 chunks * 18446744073709551615 micro-batches, forward \
         and backward; at most 131072 micro-batches fit"
    );
    let error = config("interleaved", usize::MAX, 2, 1).forward_only().unwrap_err();
    assert!(matches!(error, ScheduleError::TooLarge { most: 0, .. }), "{error}");
}

proptest! {
    #[test]
    fn every_schedule_passes_its_check_and_holds_its_warm_up(sizes in sizes()) {
        let (p, v, m, g) = sizes;
        for (kind, schedule) in schedules(sizes) {
            let peak = |stage| match kind {
                None => 0,
                Some(ScheduleKind::GPipe) => m,
                Some(ScheduleKind::OneForwardOneBackward) => m.min(p - stage),
                // The warm-up, and the one forward pass that comes before the first backward pass.
                Some(ScheduleKind::Interleaved { .. }) => (m * v).min(2 * (p - stage - 1) + (v - 1) * g + 1),
            };
            for capacity in [0, 1, 2, usize::MAX] {
                let report = schedule.check(capacity);
                let report = report.map_err(|error| TestCaseError::fail(format!("at capacity {capacity}: {error}")))?;
                for (number, stage) in report.stages.iter().enumerate() {
                    prop_assert_eq!(stage.peak_activations, peak(number), "{:?}, stage {}", kind, number);
                    // From either neighbour, in either direction.
                    prop_assert!(stage.peak_messages <= capacity.saturating_mul(4));
                }
            }
        }
    }

    #[test]
    fn messages_are_sent_at_once_and_received_right_before_use_unless_interleaved(sizes in sizes()) {
        for (kind, schedule) in schedules(sizes) {
            let geometry = schedule.geometry();
            for (stage, list) in schedule.stages.iter().enumerate() {
                let mut made = None;
                let mut received: Vec<Message> = Vec::new();
                for action in list {
                    for message in action.sends() {
                        prop_assert_eq!(made.take(), Some(*message));
                    }
                    received.extend(action.recvs());
                    let Some((pass, task)) = action.compute() else { continue };
                    prop_assert_eq!(made, None);
                    let step = Step { stage, pass, task };
                    made = geometry.output(step);
                    if !matches!(kind, Some(ScheduleKind::Interleaved { .. })) {
                        prop_assert_eq!(std::mem::take(&mut received), Vec::from_iter(geometry.input(step)));
                    }
                }
            }
        }
    }

    #[test]
    fn the_backward_passes_of_a_chunk_ascend_whatever_the_kind(sizes in sizes()) {
        let (_, _, m, _) = sizes;
        for (kind, schedule) in schedules(sizes) {
            let count = if kind.is_some() { m } else { 0 };
            for stage in &schedule.stages {
                for chunk in 0..schedule.num_chunks {
                    let backward = stage.iter().filter_map(Action::compute).filter_map(|(pass, task)| {
                        (pass == Pass::Backward && task.chunk == chunk).then_some(task.micro_batch)
                    });
                    prop_assert!(backward.eq(0..count), "{kind:?} at {sizes:?}");
                }
            }
        }
    }

    #[test]
    fn every_group_size_that_an_error_names_is_valid(p in 2usize..=8, m in 1usize..=32, g in 1usize..=40) {
        let error = config(&format!("interleaved:{g}"), p, 2, m).init();
        if let Err(ScheduleError::GroupSize { nearest, others, .. }) = error {
            for group_size in nearest.split(" and ") {
                let kind = format!("interleaved:{group_size}");
                prop_assert!(config(&kind, p, 2, m).init().is_ok());
            }
            if let Some((_, counts)) = others.rsplit_once("are ") {
                for count in counts.split(" and ") {
                    let config = config(&format!("interleaved:{g}"), p, 2, count.parse().unwrap());
                    prop_assert!(config.init().is_ok());
                }
            }
        }
    }
}
