//! Tests of the schedules: their orders, their messages, their needs, and the sizes that have none.

use proptest::prelude::*;

use super::{Sizes, interleaved};
use crate::pipeline_parallel::schedule::{
    Action, Direction, Message, Pass, Schedule, ScheduleConfig, ScheduleError, ScheduleKind, Task, geometry::Step,
};

fn config(kind: &str, num_stages: usize, num_chunks: usize, num_micro_batches: usize) -> ScheduleConfig {
    ScheduleConfig {
        kind: kind.parse().unwrap(),
        num_stages,
        num_chunks,
        num_micro_batches,
    }
}

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
fn fewer_micro_batches_than_stages_are_all_warm_up() {
    let schedule = config("1f1b", 4, 1, 2).init().unwrap();
    assert_eq!(tasks(&schedule, 0), "F0 F1 B0 B1");
    assert_eq!(tasks(&schedule, 2), "F0 F1 B0 B1");
    assert_eq!(tasks(&schedule, 3), "F0 B0 F1 B1");
}

#[test]
fn a_single_stage_has_no_messages() {
    for kind in ["1f1b", "gpipe"] {
        let schedule = config(kind, 1, 1, 3).init().unwrap();
        let expected = if kind == "1f1b" {
            "F0 B0 F1 B1 F2 B2"
        } else {
            "F0 F1 F2 B0 B1 B2"
        };
        assert_eq!(text(&schedule, 0), expected);
    }
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

/// Sizes that the interleaved rule allows.
fn interleaved_sizes() -> impl Strategy<Value = (usize, usize, usize, usize)> {
    (2usize..=8, 2usize..=4, 1usize..=32)
        .prop_flat_map(|(p, v, m)| (Just(p), Just(v), Just(p.max(m)), p..=p.max(m)))
        .prop_filter("rule", |&(p, _, m, g)| m % g == 0 || m % g >= p)
}

/// The peak of held activations of each stage, after checks at capacities 0, 1 and 2.
fn checked_peaks(schedule: &Schedule) -> Result<Vec<usize>, TestCaseError> {
    let mut peaks = Vec::new();
    for capacity in [0, 1, 2, usize::MAX] {
        let report = schedule.check(capacity);
        let report = report.map_err(|error| TestCaseError::fail(format!("at capacity {capacity}: {error}")))?;
        peaks = report.stages.iter().map(|stage| stage.peak_activations).collect();
        for stage in &report.stages {
            // From either neighbour, in either direction.
            prop_assert!(stage.peak_messages <= capacity.saturating_mul(4));
        }
    }
    Ok(peaks)
}

proptest! {
    #[test]
    fn gpipe_passes_its_check_and_holds_all_micro_batches(p in 1usize..=8, m in 1usize..=32) {
        let schedule = config("gpipe", p, 1, m).init().unwrap();
        prop_assert_eq!(checked_peaks(&schedule)?, vec![m; p]);
    }

    #[test]
    fn one_forward_one_backward_passes_its_check_and_holds_the_pipeline_ahead(p in 1usize..=8, m in 1usize..=32) {
        let schedule = config("1f1b", p, 1, m).init().unwrap();
        let expected: Vec<usize> = (0..p).map(|stage| m.min(p - stage)).collect();
        prop_assert_eq!(checked_peaks(&schedule)?, expected);
    }

    /// The warm-up, and the one forward pass that comes before the first backward pass.
    #[test]
    fn interleaved_passes_its_check_and_holds_its_warm_up((p, v, m, g) in interleaved_sizes()) {
        let schedule = config(&format!("interleaved:{g}"), p, v, m).init().unwrap();
        let expected: Vec<usize> = (0..p).map(|stage| (m * v).min(2 * (p - stage - 1) + (v - 1) * g + 1)).collect();
        prop_assert_eq!(checked_peaks(&schedule)?, expected);
    }

    #[test]
    fn forward_only_passes_its_check(p in 1usize..=8, v in 1usize..=4, m in 1usize..=32) {
        let schedule = config("1f1b", p, v, m).forward_only().unwrap();
        prop_assert_eq!(checked_peaks(&schedule)?, vec![0; p]);
    }

    #[test]
    fn messages_are_sent_at_once_and_received_right_before_use_unless_interleaved(
        (p, v, m, g) in interleaved_sizes(), kind in 0usize..4,
    ) {
        let schedule = match kind {
            0 => config("gpipe", p, 1, m).init().unwrap(),
            1 => config("1f1b", p, 1, m).init().unwrap(),
            2 => config("gpipe", p, v, m).forward_only().unwrap(),
            _ => config(&format!("interleaved:{g}"), p, v, m).init().unwrap(),
        };
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
                if kind < 3 {
                    prop_assert_eq!(std::mem::take(&mut received), Vec::from_iter(geometry.input(step)));
                }
            }
        }
    }

    #[test]
    fn the_backward_passes_of_a_chunk_ascend_whatever_the_kind(p in 1usize..=8, v in 1usize..=4, m in 1usize..=32) {
        for kind in ScheduleKind::ALL {
            let config = ScheduleConfig { kind, num_stages: p, num_chunks: v, num_micro_batches: m };
            let Ok(schedule) = config.init() else { continue };
            for stage in &schedule.stages {
                for chunk in 0..v {
                    let backward = stage.iter().filter_map(Action::compute).filter_map(|(pass, task)| {
                        (pass == Pass::Backward && task.chunk == chunk).then_some(task.micro_batch)
                    });
                    prop_assert!(backward.eq(0..m), "{kind} on {p} stages of {v} chunks, {m} micro-batches");
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
