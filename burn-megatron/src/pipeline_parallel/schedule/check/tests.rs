//! Tests of the check: lists made by hand, right and wrong, and what it says of each fault.

use super::StageReport;
use crate::pipeline_parallel::schedule::{
    Action, Direction, Message, Schedule, Task,
    geometry::{Geometry, Step},
    tests::config,
};

/// Reads a list of stage `stage`: `F0` and `B0` are tasks of chunk 0, `F0.1` of chunk 1, `>F0` sends what they make,
/// `<F0` receives what they take, and `[>F0 <B0]` does both at the same time.
fn list(geometry: Geometry, stage: usize, text: &str) -> Vec<Action> {
    let mut list = Vec::new();
    let mut exchange: Option<(Vec<Message>, Vec<Message>)> = None;
    for word in text.split(' ') {
        if word.starts_with('[') {
            exchange = Some(Default::default());
        }
        let bare = word.trim_matches(['[', ']']);
        let (sign, bare) = match bare.strip_prefix(['<', '>']) {
            Some(rest) => (bare.chars().next(), rest),
            None => (None, bare),
        };
        let (micro_batch, chunk) = bare[1..].split_once('.').unwrap_or((&bare[1..], "0"));
        let task = Task {
            micro_batch: micro_batch.parse().unwrap(),
            chunk: chunk.parse().unwrap(),
        };
        let computes = if bare.starts_with('F') {
            Action::Forward(task)
        } else {
            Action::Backward(task)
        };
        let (pass, task) = computes.compute().unwrap();
        let step = Step { stage, pass, task };
        let (sent, received) = match sign {
            Some('>') => (geometry.output(step), None),
            Some(_) => (None, geometry.input(step)),
            None => (None, None),
        };
        match (&mut exchange, sent, received) {
            (Some((sends, recvs)), sent, received) => {
                sends.extend(sent);
                recvs.extend(received);
            }
            (None, Some(message), _) => list.push(Action::Send(message)),
            (None, None, Some(message)) => list.push(Action::Recv(message)),
            (None, None, None) => list.push(computes),
        }
        if word.ends_with(']') {
            let (sends, recvs) = exchange.take().unwrap();
            list.push(Action::Exchange { sends, recvs });
        }
    }
    list
}

fn schedule(num_chunks: usize, num_micro_batches: usize, is_forward_only: bool, stages: &[&str]) -> Schedule {
    let geometry = Geometry {
        num_stages: stages.len(),
        num_chunks,
    };
    Schedule {
        num_chunks,
        num_micro_batches,
        is_forward_only,
        stages: stages
            .iter()
            .enumerate()
            .map(|(stage, text)| list(geometry, stage, text))
            .collect(),
    }
}

/// GPipe on two stages, two micro-batches.
const FIRST: &str = "F0 >F0 F1 [>F1 <B0] B0 <B1 B1";
const LAST: &str = "<F0 F0 <F1 F1 B0 >B0 B1 >B1";

fn fault(first: &str, last: &str) -> String {
    schedule(1, 2, false, &[first, last]).check(0).unwrap_err().to_string()
}

#[test]
fn a_right_schedule_is_reported_on() {
    let report = schedule(1, 2, false, &[FIRST, LAST]).check(0).unwrap();
    let stage = StageReport {
        peak_activations: 2,
        peak_messages: 0,
    };
    assert_eq!(report.stages, [stage; 2]);
}

/// The first stage sends in every round, the last one receives in every second round.
#[test]
fn the_messages_in_the_channels_are_counted() {
    let stages = ["F0 F1 F2 F3 >F0 >F1 >F2 >F3", "<F0 F0 <F1 F1 <F2 F2 <F3 F3"];
    let schedule = schedule(1, 4, true, &stages);
    for (capacity, expected) in [(0, 0), (1, 1), (2, 2), (9, 2)] {
        let report = schedule.check(capacity).unwrap();
        let peaks: Vec<usize> = report.stages.iter().map(|stage| stage.peak_messages).collect();
        assert_eq!(peaks, [0, expected], "at capacity {capacity}");
    }
}

#[test]
fn a_missing_backward_is_named() {
    assert_eq!(
        fault("F0 >F0 F1 [>F1 <B0] B0 <B1", LAST),
        "stage 0 never runs the backward of micro-batch 1, chunk 0: expected it exactly once in its 6 actions"
    );
}

#[test]
fn a_doubled_forward_is_named() {
    assert_eq!(
        fault(FIRST, "<F0 F0 <F1 F1 F0 B0 >B0 B1 >B1"),
        "stage 1, action 4 (forward of micro-batch 0, chunk 0): expected the forward of micro-batch 0, chunk 0 once, \
         but stage 1, action 1 (forward of micro-batch 0, chunk 0) did it before"
    );
}

#[test]
fn a_doubled_send_is_named() {
    assert_eq!(
        fault("F0 >F0 >F0 F1 [>F1 <B0] B0 <B1 B1", LAST),
        "stage 0, action 2 (send to stage 1: activation of micro-batch 0 from virtual stage 0): expected stage 0 sends \
         the activation of micro-batch 0 from virtual stage 0 once, but stage 0, action 1 (send to stage 1: activation \
         of micro-batch 0 from virtual stage 0) did it before"
    );
}

#[test]
fn a_backward_before_its_forward_is_named() {
    assert_eq!(
        fault(FIRST, "<F0 F0 <F1 B1 F1 B0 >B0 >B1"),
        "stage 1, action 3 (backward of micro-batch 1, chunk 0): expected after stage 1, action 4 (forward of \
         micro-batch 1, chunk 0)"
    );
}

#[test]
fn a_swapped_pair_of_receives_is_named() {
    assert_eq!(
        fault(FIRST, "<F1 <F0 F0 F1 B0 >B0 B1 >B1"),
        "stage 1, action 0 (receive from stage 0: activation of micro-batch 1 from virtual stage 0): expected the \
         activation of micro-batch 0 from virtual stage 0, which stage 0, action 1 (send to stage 1: activation of \
         micro-batch 0 from virtual stage 0) sends as number 0 through this channel, got the activation of micro-batch \
         1 from virtual stage 0"
    );
}

#[test]
fn an_input_that_comes_too_late_is_named() {
    assert_eq!(
        fault(FIRST, "F0 <F0 <F1 F1 B0 >B0 B1 >B1"),
        "stage 1, action 0 (forward of micro-batch 0, chunk 0): expected its input before it: receive from stage 0: \
         activation of micro-batch 0 from virtual stage 0"
    );
    // No message at all: neither sent nor received.
    assert_eq!(
        fault("F0 F1 [>F1 <B0] B0 <B1 B1", "F0 <F1 F1 B0 >B0 B1 >B1"),
        "stage 1, action 0 (forward of micro-batch 0, chunk 0): expected its input before it: receive from stage 0: \
         activation of micro-batch 0 from virtual stage 0"
    );
    // The chunks of a single stage hand over without messages.
    let error = schedule(2, 1, true, &["F0.1 F0"]).check(0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "stage 0, action 0 (forward of micro-batch 0, chunk 1): expected its input before it: forward of micro-batch \
         0, chunk 0, on the same stage"
    );
}

#[test]
fn a_message_sent_before_it_was_made_is_named() {
    assert_eq!(
        fault(">F0 F0 F1 [>F1 <B0] B0 <B1 B1", LAST),
        "stage 0, action 0 (send to stage 1: activation of micro-batch 0 from virtual stage 0): expected after stage \
         0, action 1 (forward of micro-batch 0, chunk 0), which makes the activation of micro-batch 0 from virtual \
         stage 0"
    );
}

#[test]
fn a_wrong_peer_is_named() {
    let mut wrong = config("1f1b", 3, 1, 1).init().unwrap();
    let Action::Recv(message) = &mut wrong.stages[1][0] else {
        panic!("begins with a receive")
    };
    message.peer = 2;
    assert_eq!(
        wrong.check(0).unwrap_err().to_string(),
        "stage 1, action 0 (receive from stage 2: activation of micro-batch 0 from virtual stage 0): expected stage 0 \
         at the other end, got stage 2"
    );
    wrong.stages[1].remove(0);
    let stray = Action::Recv(Message {
        direction: Direction::Forward,
        micro_batch: 0,
        from: 0,
        peer: 0,
    });
    wrong.stages[2].insert(0, stray);
    assert_eq!(
        wrong.check(0).unwrap_err().to_string(),
        "stage 2, action 0 (receive from stage 0: activation of micro-batch 0 from virtual stage 0): expected on stage \
         1, which receives this message"
    );
}

#[test]
fn a_send_never_received_is_named() {
    assert_eq!(
        fault(FIRST, "<F0 F0 F1 B0 >B0 B1 >B1"),
        "stage 0, action 3 (exchange [send to stage 1: activation of micro-batch 1 from virtual stage 0; receive from \
         stage 1: gradient of micro-batch 0 from virtual stage 1]): expected stage 1 to receive the activation of \
         micro-batch 1 from virtual stage 0, which it never does"
    );
}

#[test]
fn a_receive_never_sent_is_named() {
    assert_eq!(
        fault(FIRST, "<F0 F0 <F1 F1 B0 >B0 B1"),
        "stage 0, action 5 (receive from stage 1: gradient of micro-batch 1 from virtual stage 1): expected stage 1 to \
         send the gradient of micro-batch 1 from virtual stage 1, which it never does"
    );
}

#[test]
fn numbers_out_of_range_are_named() {
    assert_eq!(
        fault("F7", LAST),
        "stage 0, action 0 (forward of micro-batch 7, chunk 0): expected a micro-batch below 2, got 7"
    );
    assert_eq!(
        fault("F0.3", LAST),
        "stage 0, action 0 (forward of micro-batch 0, chunk 3): expected a chunk below 1, got 3"
    );
    let with = |direction, from| {
        let mut wrong = schedule(1, 2, false, &[FIRST, LAST]);
        wrong.stages[0][1] = Action::Send(Message {
            direction,
            micro_batch: 0,
            from,
            peer: 1,
        });
        wrong.check(0).unwrap_err().to_string()
    };
    assert_eq!(
        with(Direction::Forward, 9),
        "stage 0, action 1 (send to stage 1: activation of micro-batch 0 from virtual stage 9): expected a virtual \
         stage below 2, got 9"
    );
    assert_eq!(
        with(Direction::Backward, 0),
        "stage 0, action 1 (send to stage 1: gradient of micro-batch 0 from virtual stage 0): expected no such \
         message, the pipeline ends there"
    );
}

#[test]
fn huge_sizes_cost_no_more_than_the_lists() {
    let mut huge = schedule(1, 2, false, &[FIRST, LAST]);
    huge.num_micro_batches = usize::MAX;
    assert_eq!(
        huge.check(0).unwrap_err().to_string(),
        "stage 0 never runs the forward of micro-batch 2, chunk 0: expected it exactly once in its 7 actions"
    );
    huge.num_chunks = usize::MAX;
    assert!(huge.check(usize::MAX).is_err());
    huge.num_chunks = 0;
    assert_eq!(
        huge.check(0).unwrap_err().to_string(),
        "num_chunks must be at least 1, got 0"
    );
}

#[test]
fn a_forward_only_schedule_has_no_backward_pass() {
    let forward = |first, last| schedule(1, 1, true, &[first, last]).check(0);
    let report = forward("F0 >F0", "<F0 F0").unwrap();
    assert_eq!(report.stages, [StageReport::default(); 2]);
    assert_eq!(
        forward("F0 >F0", "<F0 F0 B0").unwrap_err().to_string(),
        "stage 1, action 2 (backward of micro-batch 0, chunk 0): expected no backward pass, the schedule is forward \
         only"
    );
    assert_eq!(
        forward("F0 >F0", "<F0 F0 >B0").unwrap_err().to_string(),
        "stage 1, action 2 (send to stage 0: gradient of micro-batch 0 from virtual stage 1): expected no such \
         message, the schedule is forward only"
    );
}

#[test]
fn an_exchange_has_one_message_per_channel() {
    assert_eq!(
        fault("F0 F1 [>F0 >F1 <B0] B0 <B1 B1", LAST),
        "stage 0, action 2 (exchange [send to stage 1: activation of micro-batch 0 from virtual stage 0; send to stage \
         1: activation of micro-batch 1 from virtual stage 0; receive from stage 1: gradient of micro-batch 0 from \
         virtual stage 1]): expected transfers through channels of their own, got two from stage 0 to stage 1 in the \
         channel of activations"
    );
    let mut empty = schedule(1, 2, false, &[FIRST, LAST]);
    empty.stages[0].insert(
        0,
        Action::Exchange {
            sends: Vec::new(),
            recvs: Vec::new(),
        },
    );
    assert_eq!(
        empty.check(0).unwrap_err().to_string(),
        "stage 0, action 0 (exchange []): expected transfers through channels of their own, got none"
    );
}

/// Two stages that send to each other before they receive.
#[test]
fn sends_in_a_ring_need_room_in_the_channels() {
    let ring = schedule(
        1,
        2,
        false,
        &["F0 >F0 F1 >F1 <B0 B0 <B1 B1", "<F0 F0 B0 >B0 <F1 F1 B1 >B1"],
    );
    assert_eq!(
        ring.check(0).unwrap_err().to_string(),
        "deadlock at channel capacity 0: stage 0, action 3 (send to stage 1: activation of micro-batch 1 from virtual \
         stage 0) waits for stage 1 to receive the activation of micro-batch 1 from virtual stage 0; stage 1, action 3 \
         (send to stage 0: gradient of micro-batch 0 from virtual stage 1) waits for stage 0 to receive the gradient \
         of micro-batch 0 from virtual stage 1"
    );
    let report = ring.check(1).unwrap();
    assert_eq!(
        report
            .stages
            .iter()
            .map(|stage| stage.peak_activations)
            .collect::<Vec<_>>(),
        [2, 1]
    );
    // What an exchange does is the same without room.
    let exchange = ["F0 >F0 F1 [>F1 <B0] B0 <B1 B1", "<F0 F0 B0 [>B0 <F1] F1 B1 >B1"];
    assert!(schedule(1, 2, false, &exchange).check(0).is_ok());
    // One side is enough.
    let one = ["F0 >F0 F1 [>F1 <B0] B0 <B1 B1", "<F0 F0 B0 >B0 <F1 F1 B1 >B1"];
    assert!(schedule(1, 2, false, &one).check(0).is_ok());
}

/// The first stage gives its whole first chunk away before it takes anything back.
#[test]
fn a_full_channel_blocks() {
    let stages = [
        "F0 >F0 F1 >F1 F2 >F2 <F0.1 F0.1 >F0.1 <F1.1 F1.1 >F1.1 <F2.1 F2.1 >F2.1",
        "<F0 F0 >F0 <F1 F1 >F1 <F2 F2 >F2 <F0.1 F0.1 <F1.1 F1.1 <F2.1 F2.1",
    ];
    let schedule = schedule(2, 3, true, &stages);
    assert!(
        schedule
            .check(0)
            .unwrap_err()
            .to_string()
            .contains("deadlock at channel capacity 0")
    );
    assert!(schedule.check(1).is_ok());
}
