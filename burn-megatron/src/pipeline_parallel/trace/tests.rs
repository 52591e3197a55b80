//! Tests of traces: written, and read back as text.

use super::super::schedule::Direction;
use super::*;

fn event(activity: Activity, start: f64, end: f64) -> TimelineEvent {
    TimelineEvent {
        activity,
        step: 4,
        micro_batch: None,
        chunk: None,
        direction: None,
        peer: None,
        start,
        end,
    }
}

/// Two ranks; rank 1 receives twice at the same time, and once more after that.
fn read_back() -> Vec<Value> {
    let forward = TimelineEvent {
        micro_batch: Some(3),
        chunk: Some(1),
        ..event(Activity::Forward, 0.5, 0.75)
    };
    let send = TimelineEvent {
        micro_batch: Some(3),
        chunk: Some(1),
        direction: Some(Direction::Backward),
        peer: Some(1),
        ..event(Activity::Send, 0.75, 1.0)
    };
    let ranks = vec![
        vec![forward, send, event(Activity::Optimizer, 1.0, 2.0)],
        vec![
            event(Activity::Receive, 0.5, 0.9),
            event(Activity::Receive, 0.25, 0.75),
            event(Activity::Receive, 0.9, 1.0),
        ],
    ];
    let names = ["rank 0".to_owned(), "rank 1 \"last\"".to_owned()];
    let text = chrome_trace(&ranks, &names).to_string();
    let trace: Value = serde_json::from_str(&text).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

#[test]
fn every_event_is_complete_and_in_microseconds() {
    let events = read_back();
    let complete: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(complete.len(), 6);
    let expected = json!({
        "ph": "X", "name": "forward 3", "cat": "forward", "pid": 0, "tid": COMPUTE, "ts": 500_000.0, "dur": 250_000.0,
        "args": { "step": 4, "micro_batch": 3, "chunk": 1 },
    });
    assert_eq!(*complete[0], expected);
    let expected = json!({ "step": 4, "micro_batch": 3, "chunk": 1, "peer": 1, "direction": "backward" });
    assert_eq!(complete[1]["args"], expected);
    assert_eq!(complete[1]["tid"], FIRST_SEND);
    assert_eq!(
        (&complete[2]["name"], &complete[2]["tid"]),
        (&json!("optimizer"), &json!(COMPUTE))
    );
}

#[test]
fn every_rank_and_track_has_a_name() {
    let events = read_back();
    let named = |what: &str, rank: usize, track: usize| {
        let found = events
            .iter()
            .find(|event| event["name"] == what && event["pid"] == rank && event["tid"] == track);
        found.map(|event| event["args"]["name"].as_str().unwrap().to_owned())
    };
    assert_eq!(named("process_name", 1, COMPUTE).unwrap(), "rank 1 \"last\"");
    for event in events.iter().filter(|event| event["ph"] == "X") {
        let (rank, track) = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        assert!(named("thread_name", rank as usize, track as usize).is_some(), "{event}");
    }
    assert_eq!(named("thread_name", 1, FIRST_RECEIVE + 1).unwrap(), "receive 2");
}

#[test]
fn events_of_a_track_do_not_overlap() {
    let events = read_back();
    let tracks: Vec<u64> = events
        .iter()
        .filter(|event| event["cat"] == "receive")
        .map(|event| event["tid"].as_u64().unwrap())
        .collect();
    // In order of their start; the third begins when the second has ended.
    let first = FIRST_RECEIVE as u64;
    assert_eq!(tracks, [first, first + 1, first]);
}
