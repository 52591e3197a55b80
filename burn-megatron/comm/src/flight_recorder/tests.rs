//! Rings, files and reports without processes; with processes in the repository's `tests/parity/cases/faults.rs`.

use std::fs;
use std::panic::Location;
use std::path::Path;

use super::*;

const CALL: CallNote = CallNote {
    operation: "all_reduce",
    reduce_op: Some("sum"),
    element_type: "f32",
    length: 3,
    peer: None,
};

/// A rank of three.
fn recorder(rank: usize, length: usize, folder: Option<&Path>) -> FlightRecorder {
    recorder_of(3, "node".into(), rank, length, folder)
}

fn recorder_of(world_size: usize, host: String, rank: usize, length: usize, folder: Option<&Path>) -> FlightRecorder {
    let identity = RankIdentity {
        rank,
        world_size,
        host,
        job_id: "0123456789abcdef".into(),
    };
    FlightRecorder::new(identity, length, folder.map(Path::to_owned))
}

/// Makes `done` calls that end, and one more that only begins if `begins`.
fn play(group: &GroupRecorder, done: u64, begins: bool) {
    for sequence in 0..done {
        let number = group.queued(CALL, Location::caller(), None);
        group.started(number, sequence);
        group.done(number);
    }
    if begins {
        let number = group.queued(CALL, Location::caller(), Some("last".into()));
        group.started(number, done);
    }
}

#[test]
fn a_record_of_a_world_beyond_all_bounds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let record = recorder(0, 4, None).record();
    let huge = RankRecord {
        world_size: usize::MAX, // the report lists the ranks without a record
        ..record
    };
    file::write(folder.path(), &huge).unwrap();
    let error = Report::read(folder.path()).unwrap_err().to_string();
    let expected = format!(
        "is no flight record: world size {}, expected at most 1048576",
        usize::MAX
    );
    assert!(error.ends_with(&expected), "{error}");
}

#[test]
fn a_ring_keeps_the_last_calls_and_their_states() {
    let recorder = recorder(0, 4, None);
    let group = recorder.group("world", &[0, 1, 2]);
    play(&group, 9, true);
    let queued = group.queued(CALL, Location::caller(), None);
    group.numbered(queued, 10);
    let early = 0;
    group.failed(early, "long gone: changes nothing");
    let record = recorder.record();
    let calls = &record.groups[0].calls;
    let states: Vec<_> = calls.iter().map(|call| (call.sequence, call.state)).collect();
    let expected = [
        (Some(7), State::Done),
        (Some(8), State::Done),
        (Some(9), State::Running),
        (Some(10), State::Queued),
    ];
    assert_eq!(states, expected);
    assert!(calls[0].queued <= calls[0].started.unwrap() && calls[0].started <= calls[0].ended);
    assert!(calls[2].called_at.contains("flight_recorder/tests.rs"));
    assert_eq!(calls[2].label.as_deref(), Some("last"));
}

#[test]
fn a_recorder_of_no_calls_keeps_none() {
    let recorder = recorder(0, 0, None);
    play(&recorder.group("world", &[0, 1, 2]), 3, true);
    assert!(recorder.record().groups[0].calls.is_empty());
}

#[test]
fn files_keep_the_first_failure_and_survive_reading() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = recorder(1, 8, Some(folder.path()));
    play(&recorder.group("world", &[0, 1, 2]), 2, true);
    recorder.write_failure("first");
    recorder.write_failure("second");
    let mut records = Vec::new();
    let found = file::RecordFolder::open(folder.path()).unwrap();
    found.for_each(|record| records.push(record)).unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].failure.as_deref(), Some("first"));
    assert_eq!(records[0].groups, recorder.record().groups);
    assert_eq!(
        fs::read_dir(folder.path()).unwrap().count(),
        1,
        "no temporary file is left"
    );
}

#[test]
fn the_rank_without_a_record_that_others_wait_for_is_the_culprit() {
    let ranks = [recorder(0, 8, None), recorder(1, 8, None)];
    for recorder in &ranks {
        play(&recorder.group("world", &[0, 1, 2]), 4, true);
    }
    let report = Report::new(&ranks.map(|recorder| recorder.record()));
    assert_eq!((report.missing.len(), report.missing.first()), (1, Some(&(2..3))));
    assert_eq!(report.culprits, [2]);
    assert_eq!(report.late.len(), 1);
    assert_eq!(report.late[0].awaited.sequence, Some(4));
    assert_eq!(report.late[0].waiting, [0, 1].iter().collect());
}

#[test]
fn ranks_without_a_record_are_listed_as_runs_however_many_they_are() {
    let mut records = [0, 2].map(|rank| recorder(rank, 8, None).record());
    for record in &mut records {
        record.world_size = 1 << 20;
    }
    let report = Report::new(&records);
    assert_eq!(report.missing, [1..2, 3..1 << 20]);
    let text = report.to_string();
    assert!(text.contains("records of 2 of 1048576 ranks"), "{text}");
    assert!(text.contains("ranks 1, 3 to 1048575"), "{text}");
}

#[test]
fn a_rank_that_waits_itself_is_late_but_no_culprit() {
    let ranks = [recorder(0, 8, None), recorder(1, 8, None), recorder(2, 8, None)];
    play(&ranks[0].group("data", &[0, 1]), 2, true);
    play(&ranks[1].group("data", &[0, 1]), 2, false);
    play(&ranks[1].group("tensor", &[1, 2]), 7, true);
    play(&ranks[2].group("tensor", &[1, 2]), 7, false);
    let report = Report::new(&ranks.map(|recorder| recorder.record()));
    let late: Vec<_> = report
        .late
        .iter()
        .map(|lane| (lane.lane.as_str(), lane.late[0].rank))
        .collect();
    assert_eq!(
        late,
        [("tensor [1, 2]", 2), ("data [0, 1]", 1)],
        "first where the culprit is"
    );
    assert_eq!(report.culprits, [2]);
    let last = report.late[0].late[0].last.as_ref().unwrap();
    assert_eq!(last.sequence, Some(6));
}

#[test]
fn different_calls_of_one_number_are_out_of_step() {
    let ranks = [recorder(0, 8, None), recorder(1, 8, None)];
    for (rank, recorder) in ranks.iter().enumerate() {
        let group = recorder.group("world", &[0, 1]);
        play(&group, 2, false);
        let note = CallNote {
            length: 3 + rank,
            ..CALL
        };
        let number = group.queued(note, Location::caller(), None);
        group.started(number, 2);
        group.failed(number, "mismatch");
    }
    let report = Report::new(&ranks.map(|recorder| recorder.record()));
    assert_eq!(report.out_of_step.len(), 1);
    let found = &report.out_of_step[0];
    assert_eq!((found.first.0, found.first.1.as_ref().unwrap().length), (0, 3));
    assert_eq!((found.other.0, found.other.1.length), (1, 4));
    assert!(report.late.is_empty(), "{report}");
}

#[test]
fn unusable_folders_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| Report::read(path).unwrap_err().to_string();
    assert!(error(&folder.path().join("none")).starts_with("cannot read "));
    assert!(error(folder.path()).starts_with("no flight records in "));
    recorder(0, 8, Some(folder.path())).write().unwrap();
    let file = folder.path().join("flight-record-rank-1.json");
    fs::write(&file, "{\"version\": 1, ").unwrap();
    let text = error(folder.path());
    assert!(
        text.contains("flight-record-rank-1.json is no flight record: EOF"),
        "{text}"
    );
    let mut record = recorder(1, 8, None).record();
    record.version = 2;
    fs::write(&file, serde_json::to_vec(&record).unwrap()).unwrap();
    assert!(error(folder.path()).contains("version 2, expected 1"));
    (record.version, record.job_id) = (1, "another".into());
    fs::write(&file, serde_json::to_vec(&record).unwrap()).unwrap();
    assert!(error(folder.path()).contains("use one folder per job"));
}

#[test]
fn many_ranks_are_few_lines() {
    const RANKS: usize = 100;
    let folder = tempfile::tempdir().unwrap();
    let all: Vec<usize> = (0..RANKS).collect();
    for rank in (0..RANKS).filter(|&rank| rank != 37) {
        let recorder = recorder_of(RANKS, format!("node{}", rank / 8), rank, 8, Some(folder.path()));
        play(&recorder.group("world", &all), 4, rank < 90);
        let pair: Vec<usize> = [rank / 2 * 2, rank / 2 * 2 + 1].into();
        // All pairs wait for each other's second rank, which waits for rank 37.
        play(&recorder.group("pair", &pair), 2, rank % 2 == 0);
        recorder.write_failure("rank 37 on host node4 is dead");
    }
    let report = Report::read(folder.path()).unwrap();
    assert_eq!(report.late.len(), 1 + RANKS / 2);
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "job 0123456789abcdef: records of 99 of 100 ranks");
    assert_eq!(lines[1], "no record (stopped, killed, or never failed): ranks 37");
    assert_eq!(
        lines[2],
        "ranks 0-36, 38-99 on 13 hosts failed: rank 37 on host node4 is dead"
    );
    assert!(
        lines[4].contains("    37  unknown -> #2 all_reduce sum 3 f32 at "),
        "{text}"
    );
    assert!(text.contains("; ranks 0-36, 38-89\n"), "{text}");
    assert!(
        text.contains("\n... and 31 more groups in which ranks are late\n"),
        "{text}"
    );
    assert!(text.contains("the others wait for: ranks 37, 91,"), "{text}");
    assert!(lines.len() < 32, "{text}");
}

/// `cargo test -- --ignored --nocapture records_of_4096_ranks`
#[test]
#[ignore = "a measurement"]
fn records_of_4096_ranks() {
    const RANKS: usize = 4096;
    const DEAD: usize = 37;
    let folder = tempfile::tempdir().unwrap();
    let mut bytes = 0;
    for rank in (0..RANKS).filter(|&rank| rank != DEAD) {
        let recorder = recorder_of(RANKS, format!("node{}", rank / 8), rank, 256, Some(folder.path()));
        // Of tensor 8, data 32 and pipeline 16.
        let (tensor, data, stage) = (rank % 8, rank / 8 % 32, rank / 256);
        let groups: [(&str, Vec<usize>); 5] = [
            ("world", (0..RANKS).collect()),
            ("tensor", (0..8).map(|place| place + 8 * (data + 32 * stage)).collect()),
            ("data", (0..32).map(|place| tensor + 8 * (place + 32 * stage)).collect()),
            (
                "pipeline",
                (0..16).map(|place| tensor + 8 * (data + 32 * place)).collect(),
            ),
            (
                "model",
                (0..128)
                    .map(|place| place % 8 + 8 * (data + 32 * (place / 8)))
                    .collect(),
            ),
        ];
        for (name, ranks) in groups {
            let waits = name == "world" || ranks.contains(&DEAD);
            play(&recorder.group(name, &ranks), 300, waits);
        }
        recorder.write_failure("rank 37 on host node4 is dead");
        bytes += fs::metadata(folder.path().join(format!("flight-record-rank-{rank}.json")))
            .unwrap()
            .len();
    }
    let begun = std::time::Instant::now();
    let report = Report::read(folder.path()).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(report.culprits, [DEAD]);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!(
        "{report}{bytes} bytes of records lined up in {seconds:.1} s; {}",
        peak.unwrap()
    );
}

/// `cargo test --release -- --ignored --nocapture cost_of_a_recorded_call`
#[test]
#[ignore = "a measurement"]
fn cost_of_a_recorded_call() {
    let group = recorder(0, 256, None).group("world", &[0, 1, 2]);
    for _ in 0..3 {
        let start = std::time::Instant::now();
        play(&group, 1_000_000, false);
        println!("{:.0} ns per call", start.elapsed().as_secs_f64() * 1e3);
    }
}
