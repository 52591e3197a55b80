//! The writer of one rank: what it refuses, what it leaves, and asynchronous saves.

use std::fs;
use std::time::Instant;

use serde_json::json;

use super::*;
use crate::collectives::ProcessGroup;

fn writer(directory: &Path) -> CheckpointWriter {
    CheckpointWriter::new(ProcessGroup::single(), directory, CheckpointConfig::new()).unwrap()
}

fn parts() -> Vec<ArrayPart> {
    vec![
        whole("a", Placement::whole([10, 3])),
        part("b", Placement::whole([5]), 0..5, DType::BF16),
    ]
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_saved_is_read() {
    let folder = TempDir::new().unwrap();
    let state = json!({ "samples": 640, "rate": 0.1, "scaler": { "scale": 65536.0 } });
    let options = CheckpointConfig {
        layout: json!({ "tensor": 1 }),
        ..CheckpointConfig::new()
    };
    let mut writer = CheckpointWriter::new(ProcessGroup::single(), folder.path(), options).unwrap();
    writer.save(20, parts(), state.clone()).unwrap();
    let checkpoint = Checkpoint::latest(folder.path()).unwrap().unwrap();
    assert_eq!(checkpoint.path(), folder.path().join("iter_0000020"));
    assert_eq!((checkpoint.iteration(), checkpoint.world_size()), (20, 1));
    assert_eq!(
        (checkpoint.state(), checkpoint.layout()),
        (&state, &json!({ "tensor": 1 }))
    );
    assert_eq!(checkpoint.library_version(), env!("CARGO_PKG_VERSION"));
    let names: Vec<&str> = checkpoint.arrays().iter().map(|array| array.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let read = checkpoint.read("b", &Placement::whole([5]), 1..3).unwrap();
    assert_eq!(read.dtype, DType::BF16);
    assert_eq!(*read.bytes, *expected(&Placement::whole([5]), 1..3, DType::BF16));
    checkpoint.verify().unwrap();
}

#[test]
fn what_is_saved_again_is_the_same_to_the_byte() {
    let saved = || {
        let folder = TempDir::new().unwrap();
        writer(folder.path())
            .save(20, parts(), json!({ "samples": 640 }))
            .unwrap();
        let read = |name: &str| fs::read(folder.path().join("iter_0000020").join(name)).unwrap();
        [read("rank_00000.safetensors"), read("index.json")]
    };
    let first = saved();
    // The order of a hash map is another one most of the time.
    for _ in 0..10 {
        assert!(saved() == first, "other bytes");
    }
}

#[test]
fn an_iteration_that_is_there_is_replaced() {
    let folder = TempDir::new().unwrap();
    let mut writer = writer(folder.path());
    for text in ["first", "second"] {
        writer.save(20, parts(), json!(text)).unwrap();
        assert_eq!(Checkpoint::latest(folder.path()).unwrap().unwrap().state(), text);
    }
    assert_eq!(names(folder.path()), [".lock", "iter_0000020"]);
}

#[test]
fn what_is_open_can_be_read_while_it_is_replaced() {
    let folder = TempDir::new().unwrap();
    let mut writer = writer(folder.path());
    writer.save(20, parts(), Value::Null).unwrap();
    let old = Checkpoint::latest(folder.path()).unwrap().unwrap();
    old.read("a", &Placement::whole([10, 3]), 0..1).unwrap();
    writer
        .save(20, vec![whole("a", Placement::whole([4]))], Value::Null)
        .unwrap();
    let all = Placement::whole([10, 3]);
    assert_eq!(
        *old.read("a", &all, 0..30).unwrap().bytes,
        *expected(&all, 0..30, DType::F32)
    );
}

#[test]
fn an_asynchronous_save_is_the_same() {
    let folder = TempDir::new().unwrap();
    let mut writer = writer(folder.path());
    for iteration in [10, 20, 30] {
        writer.save_start(iteration, parts(), json!(iteration)).unwrap();
    }
    writer.wait().unwrap();
    let checkpoint = Checkpoint::latest(folder.path()).unwrap().unwrap();
    assert_eq!((checkpoint.iteration(), checkpoint.state()), (30, &json!(30)));
    checkpoint.verify().unwrap();
    assert_eq!(names(folder.path()).len(), 4);
    // Dropping waits as well.
    writer.save_start(40, parts(), Value::Null).unwrap();
    drop(writer);
    assert_eq!(Checkpoint::latest(folder.path()).unwrap().unwrap().iteration(), 40);
}

#[test]
fn an_asynchronous_save_that_fails_stops_no_other() {
    let folder = TempDir::new().unwrap();
    let mut writer = writer(folder.path());
    writer.save(10, parts(), Value::Null).unwrap();
    fs::write(folder.path().join("iter_0000020"), "a file in its place").unwrap();
    writer.save_start(20, parts(), Value::Null).unwrap();
    assert_says(
        writer.wait().unwrap_err(),
        &["iteration 20 was not saved", "rank 0", "iter_0000020 is not a folder"],
    );
    assert_eq!(names(folder.path()), [".lock", "iter_0000010", "iter_0000020"]);
    // The error is returned once. If no caller asks for it, the next save is made all the same.
    writer.wait().unwrap();
    let latest = || Checkpoint::latest(folder.path()).unwrap().unwrap().iteration();
    writer.save_start(20, parts(), Value::Null).unwrap();
    writer.save(30, parts(), Value::Null).unwrap();
    assert_eq!(latest(), 30);
    writer.save_start(20, parts(), Value::Null).unwrap();
    writer.save_start(40, parts(), Value::Null).unwrap();
    writer.wait().unwrap();
    assert_eq!(latest(), 40);
}

#[test]
fn dropping_does_not_wait_for_ever() {
    let folder = TempDir::new().unwrap();
    let options = CheckpointConfig {
        drop_timeout: Duration::ZERO,
        ..CheckpointConfig::new()
    };
    let mut writer = CheckpointWriter::new(ProcessGroup::single(), folder.path(), options).unwrap();
    let many = (0..64).map(|i| whole(&format!("{i}"), Placement::whole([1 << 18])));
    writer.save_start(20, many.collect(), Value::Null).unwrap();
    let begun = Instant::now();
    drop(writer);
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    // The thread holds the folder until it has finished.
    while let Err(error) = SaveDirectory::hold(folder.path()) {
        assert_says(&error, &["another run saves to"]);
        assert!(begun.elapsed() < Duration::from_secs(60), "{error}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Checkpoint::latest(folder.path()).unwrap().unwrap().iteration(), 20);
}

#[test]
fn wrong_parts_are_refused_and_nothing_is_written() {
    let folder = TempDir::new().unwrap();
    let mut writer = writer(folder.path());
    writer.save(10, parts(), Value::Null).unwrap();
    let shape = Placement::whole([4]);
    let short = ArrayPart {
        data: Bytes::from_bytes_vec(vec![0; 15]),
        ..whole("a", shape.clone())
    };
    let beyond = ArrayPart {
        range: 0..5,
        ..whole("a", shape.clone())
    };
    let integers = ArrayPart {
        dtype: DType::I32,
        ..whole("a", shape.clone())
    };
    let half = part("a", shape.clone(), 0..2, DType::F32);
    let other_shape = whole("a", Placement::whole([5]));
    let other_type = part("a", shape.clone(), 2..4, DType::F16);
    let cases = [
        (vec![short], "15 bytes of data for 4 elements of F32"),
        (vec![beyond], "elements 0 to 5 of a local array of 4"),
        (vec![integers], "has type I32: expected F64, F32, F16, BF16 or U8"),
        (vec![whole("", shape.clone())], "array name \"\""),
        (vec![whole("a\n", shape.clone())], "without control characters"),
        (vec![half.clone()], "element [2] is in no part of any rank"),
        (
            vec![whole("a", shape.clone()), half.clone()],
            "element [0] is in a part of rank 0 and in one of rank 0",
        ),
        (
            vec![half.clone(), other_shape],
            "has shape [4] on rank 0 and [5] on rank 0",
        ),
        (vec![half, other_type], "has type F32 on rank 0 and F16 on rank 0"),
    ];
    for (parts, words) in cases {
        let error = writer.save(20, parts, Value::Null).unwrap_err();
        assert_says(error, &[words, "iteration 20 was not saved"]);
        assert_eq!(names(folder.path()), [".lock", "iter_0000010"]);
    }
    writer.save(20, parts(), Value::Null).unwrap();
}

#[test]
fn a_second_writer_is_refused_as_long_as_the_first_lives() {
    let folder = TempDir::new().unwrap();
    let first = writer(folder.path());
    let second = CheckpointWriter::new(ProcessGroup::single(), folder.path(), CheckpointConfig::new());
    let error = second.unwrap_err();
    assert!(
        matches!(&error, CheckpointError::Locked { directory, .. } if directory == folder.path()),
        "{error}"
    );
    assert_says(error, &[&format!("process {} on host", std::process::id())]);
    drop(first);
    writer(folder.path());
}

#[test]
fn to_keep_nothing_is_refused() {
    let folder = TempDir::new().unwrap();
    let options = CheckpointConfig {
        keep: Some(0),
        ..CheckpointConfig::new()
    };
    let error = CheckpointWriter::new(ProcessGroup::single(), folder.path(), options).unwrap_err();
    assert_says(error, &["keep must be at least 1, got 0"]);
}

#[test]
fn a_folder_with_a_later_checkpoint_is_refused() {
    let folder = TempDir::new().unwrap();
    let mut old = writer(folder.path());
    for iteration in [10, 40] {
        old.save(iteration, parts(), Value::Null).unwrap();
    }
    drop(old);
    let options = CheckpointConfig {
        keep: Some(2),
        ..CheckpointConfig::new()
    };
    let mut new = CheckpointWriter::new(ProcessGroup::single(), folder.path(), options).unwrap();
    for begins_at in [0, 39] {
        let error = new.begin_at(begins_at).unwrap_err();
        assert!(
            matches!(&error, CheckpointError::LaterCheckpoint { later, .. } if later.ends_with("iter_0000040")),
            "{error}"
        );
        let later = format!("later than iteration {begins_at}, at which this run begins");
        assert_says(
            error,
            &[folder.path().to_str().unwrap(), &later, "save to another folder"],
        );
    }
    new.begin_at(40).unwrap();
    new.begin_at(41).unwrap();
    // A run that saves earlier iterations all the same does not remove the later checkpoints.
    for iteration in [1, 2, 3] {
        new.save(iteration, parts(), Value::Null).unwrap();
    }
    assert_eq!(
        names(folder.path()),
        [".lock", "iter_0000002", "iter_0000003", "iter_0000010", "iter_0000040"]
    );
}

#[test]
fn nothing_at_all_can_be_saved() {
    let folder = TempDir::new().unwrap();
    writer(folder.path()).save(0, Vec::new(), Value::Null).unwrap();
    let checkpoint = Checkpoint::latest(folder.path()).unwrap().unwrap();
    assert!(checkpoint.arrays().is_empty() && checkpoint.files().is_empty());
    checkpoint.verify().unwrap();
}

#[test]
fn a_checkpoint_is_not_rewritten_over_another_or_itself() {
    let folder = TempDir::new().unwrap();
    writer(folder.path()).save(20, parts(), Value::Null).unwrap();
    let checkpoint = Checkpoint::latest(folder.path()).unwrap().unwrap();
    let error = checkpoint.write_unsharded(folder.path().join(".")).unwrap_err();
    assert_says(error, &["iter_0000020 is there already"]);
    assert_eq!(names(folder.path()), [".lock", "iter_0000020"]);
    let taken = TempDir::new().unwrap();
    writer(taken.path()).save(20, Vec::new(), json!("mine")).unwrap();
    let error = checkpoint.write_unsharded(taken.path()).unwrap_err();
    let place = taken.path().join("iter_0000020");
    assert_says(error, &[&format!("{} is there already", place.display())]);
    assert_eq!(Checkpoint::open(place).unwrap().state(), "mine");
    assert_eq!(names(taken.path()), [".lock", "iter_0000020"]);
    let other = TempDir::new().unwrap();
    let path = checkpoint.write_unsharded(other.path()).unwrap();
    assert_eq!(path, other.path().join("iter_0000020"));
    let converted = Checkpoint::open(path).unwrap();
    assert_eq!((converted.iteration(), converted.state()), (20, checkpoint.state()));
    assert_eq!(names(other.path()), [".lock", "iter_0000020"]);
}

#[test]
fn a_checkpoint_that_is_broken_is_not_rewritten() {
    let folder = TempDir::new().unwrap();
    writer(folder.path()).save(20, parts(), Value::Null).unwrap();
    let shard = folder.path().join("iter_0000020/rank_00000.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&shard, bytes).unwrap();
    let other = TempDir::new().unwrap();
    let checkpoint = Checkpoint::latest(folder.path()).unwrap().unwrap();
    let error = checkpoint.write_unsharded(other.path()).unwrap_err();
    assert_says(error, &["rank_00000.safetensors has been altered"]);
    assert_eq!(names(other.path()), [".lock"]);
}
