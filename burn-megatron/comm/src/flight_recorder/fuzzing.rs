//! What must hold whatever the files of a flight recorder hold; see [`crate::fuzzing`].

use std::path::Path;

use super::file::{RankRecord, RecordedCall, RecordedGroup, State, parse};
use super::report::Report;

/// Separates the files of an input: no JSON has it.
const SEPARATOR: u8 = 0;
/// Files of one input.
const MAX_FILES: usize = 4;

/// A record that is read is written as it was read, and the report of any records can be made and printed.
pub fn flight_record(data: &[u8]) {
    let files = data.split(|byte| *byte == SEPARATOR).take(MAX_FILES);
    let records: Vec<RankRecord> = files
        .filter_map(|bytes| parse(Path::new("record"), bytes).ok())
        .collect();
    for record in &records {
        let bytes = serde_json::to_vec(record).expect("a record can be written");
        assert_eq!(
            &parse(Path::new("again"), &bytes).expect("what is written can be read"),
            record
        );
    }
    if !records.is_empty() {
        assert!(!Report::new(&records).to_string().is_empty());
    }
}

/// Returns the records of two ranks, one of which is late.
pub fn flight_record_seeds() -> Vec<Vec<u8>> {
    let call = |sequence, state| RecordedCall {
        operation: "all_reduce".into(),
        reduce_op: Some("sum".into()),
        element_type: "f32".into(),
        length: 64,
        peer: None,
        sequence: Some(sequence),
        called_at: "src/a.rs:1".into(),
        label: None,
        state,
        queued: 1.5,
        started: (state != State::Queued).then_some(1.75),
        ended: (state == State::Done).then_some(2.0),
        error: None,
    };
    let record = |rank, calls| RankRecord {
        version: RankRecord::VERSION,
        job_id: "0123456789abcdef".into(),
        rank,
        world_size: 2,
        host: "node0".into(),
        pid: 1,
        written_at: 3.0,
        failure: Some("timed out".into()),
        groups: vec![RecordedGroup {
            name: "all".into(),
            ranks: vec![0, 1],
            generation: 1,
            calls,
        }],
    };
    let records = [
        record(0, vec![call(0, State::Done), call(1, State::Running)]),
        record(1, vec![call(0, State::Done), call(1, State::Queued)]),
    ];
    let files = records.map(|record| serde_json::to_vec(&record).expect("a record can be written"));
    vec![files[0].clone(), files.join(&SEPARATOR)]
}
