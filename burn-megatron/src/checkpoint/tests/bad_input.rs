//! What is wrong with a checkpoint is said, with the file and what was expected; nothing panics.

use std::fs;

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use tempfile::TempDir;

use super::super::checksum::checksum;
use super::*;

/// A checkpoint of two ranks: an embedding of 10 rows by rows, and a bias of rank 0.
fn sample() -> (TempDir, PathBuf) {
    let folder = in_memory();
    let embedding = |index| whole("model.embedding.weight", Placement::shard(&[10, 4], 0, index, 2));
    let ranks = [
        vec![embedding(0), whole("model.norm.bias", Placement::whole([4]))],
        vec![embedding(1)],
    ];
    let path = write_with(folder.path(), &ranks, |_| {});
    (folder, path)
}

/// Returns the message of opening a checkpoint, checking all of it and reading the embedding.
fn message(path: &Path) -> String {
    let read = |checkpoint: &Checkpoint| {
        checkpoint
            .read("model.embedding.weight", &Placement::whole([10, 4]), 0..40)
            .map(drop)
    };
    let checkpoint = match Checkpoint::open(path) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return error.to_string(),
    };
    let verified = checkpoint.verify().unwrap_err().to_string();
    // What `verify` finds, a read of the same bytes finds, too.
    assert_eq!(read(&checkpoint).unwrap_err().to_string(), verified);
    verified
}

/// Changes the text of an index and gives it the checksum of the new text.
fn edit_index(path: &Path, change: impl FnOnce(&mut Value)) {
    let path = path.join("index.json");
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    index.as_object_mut().unwrap().remove("checksum");
    change(&mut index);
    let mut text = serde_json::to_string(&index).unwrap();
    text.pop();
    let sum = checksum(text.as_bytes());
    fs::write(path, format!("{text},\"checksum\":\"{sum:016x}\"}}\n")).unwrap();
}

#[test]
fn missing_shard() {
    let (_folder, path) = sample();
    fs::remove_file(path.join("rank_00001.safetensors")).unwrap();
    assert_says(
        message(&path),
        &["rank_00001.safetensors is missing", "expected", "written by rank 1"],
    );
}

#[test]
fn a_shard_that_is_looked_at_later_is_missed_when_it_is_read() {
    let (_folder, path) = sample();
    fs::remove_file(path.join("rank_00001.safetensors")).unwrap();
    let checkpoint = Checkpoint::open_with(&path, ReadConfig::new().with_shards_later(true)).unwrap();
    let expected = ["rank_00001.safetensors is missing", "expected", "written by rank 1"];
    assert_says(checkpoint.verify().unwrap_err(), &expected);
    let array = &checkpoint.arrays()[0];
    let placement = Placement::whole(array.shape.clone());
    let range = 0..placement.local_len();
    let error = checkpoint.read(&array.name, &placement, range).unwrap_err();
    assert_says(error, &expected);
}

#[test]
fn truncated_shard() {
    let (_folder, path) = sample();
    let shard = path.join("rank_00001.safetensors");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    let expected = format!("expected {}", bytes.len());
    assert_says(message(&path), &["rank_00001.safetensors has", &expected]);
    fs::remove_file(&shard).unwrap();
    fs::create_dir(&shard).unwrap();
    assert_says(message(&path), &["rank_00001.safetensors", "expected a file"]);
}

#[test]
fn altered_byte_of_an_array() {
    let (_folder, path) = sample();
    let shard = path.join("rank_00001.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    *bytes.last_mut().unwrap() ^= 4;
    fs::write(&shard, &bytes).unwrap();
    let end = format!("bytes 0 to {} have checksum", bytes.len());
    assert_says(
        message(&path),
        &["rank_00001.safetensors has been altered", &end, "expected"],
    );
    // Who does not compare checksums gets what is there, but `verify` does.
    let options = ReadConfig::new().with_skip_checksums(true);
    let checkpoint = Checkpoint::open_with(&path, options).unwrap();
    checkpoint
        .read("model.embedding.weight", &Placement::whole([10, 4]), 0..40)
        .unwrap();
    assert_says(checkpoint.verify().unwrap_err(), &["has been altered"]);
}

#[test]
fn every_altered_byte_is_found() {
    let (_folder, path) = sample();
    for name in ["rank_00000.safetensors", "rank_00001.safetensors", "index.json"] {
        let file = path.join(name);
        let good = fs::read(&file).unwrap();
        for position in 0..good.len() {
            let mut bytes = good.clone();
            bytes[position] ^= 1 << (position % 8);
            fs::write(&file, bytes).unwrap();
            let outcome = Checkpoint::open(&path).and_then(|checkpoint| checkpoint.verify());
            let message = outcome.expect_err(&format!("byte {position} of {name}")).to_string();
            assert!(message.contains(name), "byte {position} of {name}: {message}");
        }
        fs::write(&file, good).unwrap();
    }
    Checkpoint::open(&path).unwrap().verify().unwrap();
}

#[test]
fn missing_index() {
    let (folder, path) = sample();
    fs::remove_file(path.join("index.json")).unwrap();
    assert_says(message(&path), &["iter_0000020", "expected index.json"]);
    // Nor is an older one, which is whole, taken instead.
    let older = folder.path().join("iter_0000010");
    fs::create_dir(&older).unwrap();
    fs::write(older.join("index.json"), "").unwrap();
    for opened in [
        Checkpoint::latest(folder.path()).map(|_| ()),
        Checkpoint::find(folder.path()).map(|_| ()),
    ] {
        assert_says(
            opened.unwrap_err(),
            &[
                path.to_str().unwrap(),
                "index.json is missing",
                "move the folder away to resume from the checkpoint before it",
            ],
        );
    }
    let error = Checkpoint::find(&path).unwrap_err();
    assert_says(error, &["no checkpoint in", path.to_str().unwrap(), "iter_0000020"]);
}

#[test]
fn garbage_for_an_index() {
    let (_folder, path) = sample();
    for garbage in ["", "no json", "{}", "{\"format\":\"another\",\"version\":1}", "[1]"] {
        fs::write(path.join("index.json"), garbage).unwrap();
        assert_says(message(&path), &["index.json is no index of a checkpoint"]);
    }
    // The largest that is read is larger than what a disk's free space is spent on here: a file of holes.
    let huge = fs::File::create(path.join("index.json")).unwrap();
    huge.set_len((512 << 20) + 1).unwrap();
    assert_says(message(&path), &["expected at most 536870912 bytes"]);
}

#[test]
fn a_pipe_is_not_waited_for() {
    for name in ["index.json", "rank_00001.safetensors"] {
        let (_folder, path) = sample();
        let pipe = path.join(name);
        fs::remove_file(&pipe).unwrap();
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // In a thread of its own, for whoever waits for a pipe waits for ever.
        let (sender, found) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(message(&path)));
        let found = found.recv_timeout(Duration::from_secs(20));
        assert_says(found.expect("never blocks"), &[pipe.to_str().unwrap(), "expected a"]);
    }
}

#[test]
fn name_of_another_iteration() {
    let (folder, path) = sample();
    let renamed = folder.path().join("iter_0000030");
    fs::rename(&path, &renamed).unwrap();
    for opened in [Checkpoint::open(&renamed).map(Some), Checkpoint::latest(folder.path())] {
        assert_says(
            opened.unwrap_err(),
            &["iter_0000030 is of iteration 30 by its name and of iteration 20 by its index"],
        );
    }
    let copy = folder.path().join("best");
    fs::rename(&renamed, &copy).unwrap();
    assert_eq!(Checkpoint::open(&copy).unwrap().iteration(), 20);
}

#[test]
fn newer_format() {
    let (_folder, path) = sample();
    edit_index(&path, |index| index["version"] = 2.into());
    assert_says(
        message(&path),
        &["index.json has format version 2", "expected at most 1"],
    );
}

#[test]
fn array_of_another_model() {
    let (_folder, path) = sample();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let error = checkpoint
        .read("model.norm.gamma", &Placement::whole([4]), 0..4)
        .unwrap_err();
    assert_says(
        error,
        &[
            "no array \"model.norm.gamma\" among its 2",
            "\"model.norm.bias\"",
            "iter_0000020",
        ],
    );
}

#[test]
fn array_of_another_vocabulary() {
    let (_folder, path) = sample();
    let checkpoint = Checkpoint::open(&path).unwrap();
    let twelve_rows = Placement::shard(&[12, 4], 0, 0, 2);
    let error = checkpoint
        .read("model.embedding.weight", &twelve_rows, 0..24)
        .unwrap_err();
    assert_says(
        error,
        &[
            "model.embedding.weight",
            "has shape [10, 4]",
            "expected [12, 4]",
            "iter_0000020",
        ],
    );
    // The same rows with another padding are the same vocabulary.
    let padded = Placement::new([10, 4], [6, 0], [6, 4]);
    let read = checkpoint.read("model.embedding.weight", &padded, 0..24).unwrap();
    assert_eq!(*read.bytes, *expected(&padded, 0..24, DType::F32));
    let error = checkpoint.read("model.embedding.weight", &padded, 0..25).unwrap_err();
    assert_says(error, &["elements 0 to 25 of a local array of 24"]);
}

#[test]
fn element_in_no_part_or_in_two() {
    let folder = TempDir::new().unwrap();
    let ranks = [0, 1].map(|index| vec![whole("a", Placement::shard(&[4, 3], 0, index, 2))]);
    let path = write_with(folder.path(), &ranks, |index| {
        index.arrays[0].parts.pop();
    });
    assert_says(
        Checkpoint::open(&path).unwrap_err(),
        &[
            "array \"a\" of shape [4, 3]",
            "parts have 6 elements in all, expected 12",
        ],
    );
    let path = write_with(folder.path(), &ranks, |index| {
        let parts = &mut index.arrays[0].parts;
        parts[1].placement = parts[0].placement.clone();
    });
    let checkpoint = Checkpoint::open(&path).unwrap();
    let all = Placement::whole([4, 3]);
    assert!(checkpoint.read("a", &all, 0..6).is_ok());
    let error = checkpoint.read("a", &all, 2..8).unwrap_err();
    assert_says(error, &["array \"a\"", "element [2, 0]", "is in no part"]);
    assert_says(
        checkpoint.verify().unwrap_err(),
        &[
            "element [0, 0]",
            "rank_00000.safetensors and in one in rank_00001.safetensors",
        ],
    );
}

#[test]
fn no_room_is_made_for_an_array_that_is_not_stored() {
    let (_folder, path) = sample();
    let huge = 1_u64 << 50;
    edit_index(&path, |v| {
        v["arrays"][0]["shape"] = json!([huge]);
        v["arrays"][0]["parts"] = json!([]);
    });
    // Allocating that much would abort the process.
    let read = Checkpoint::open(&path).and_then(|checkpoint| {
        let array = Placement::whole([huge as usize]);
        checkpoint.read("model.embedding.weight", &array, 0..huge as usize)
    });
    let elements = format!("parts have 0 elements in all, expected {huge}");
    assert_says(read.unwrap_err(), &["model.embedding.weight", &elements]);
    // The parts of one file cannot add up to more bytes than it holds.
    let (_folder, path) = sample();
    edit_index(&path, |v| {
        let array = &mut v["arrays"][0];
        array["shape"] = json!([200]);
        let part = |number| {
            json!({
                "file": 0, "key": format!("{number}"), "offset": [0], "shape": [20], "range": [0, 20],
            })
        };
        array["parts"] = (0..10).map(part).collect();
    });
    let error = Checkpoint::open(&path).unwrap_err();
    assert_says(error, &["parts of 816 bytes in \"rank_00000.safetensors\""]);
}

#[test]
fn index_that_does_not_fit_its_shards() {
    let (_folder, path) = sample();
    let good = fs::read(path.join("index.json")).unwrap();
    let cases = [
        ("/arrays/0/shape", json!([1_u64 << 40, 1_u64 << 40]), "can be counted"),
        ("/arrays/0/parts/0/range", json!([0, 21]), "elements 0 to 21"),
        ("/arrays/0/parts/0/offset", json!([0]), "has a part at [0]"),
        ("/arrays/0/parts/0/file", json!(2), "a part in file 2 of 2"),
        ("/files/0/bytes", json!(64_u64 << 30), "has 1 checksums"),
        ("/files/0/blocks", json!("0123"), "16 hexadecimal digits"),
        ("/files/0/blocks", json!("ääääääää"), "16 hexadecimal digits"),
        ("/block_bytes", json!(0), "blocks of 0 bytes"),
        (
            "/files/0/name",
            json!("../rank_00000.safetensors"),
            "expected the name of a file",
        ),
        ("/arrays/0/parts/0/key", json!("other"), "expected an array \"other\""),
        (
            "/arrays/0/dtype",
            json!("F16"),
            "has 20 elements of F32: expected 20 of F16",
        ),
        ("/arrays/0/dtype", json!("I32"), "of I32"),
    ];
    for (field, value, words) in cases {
        edit_index(&path, |index| *index.pointer_mut(field).unwrap() = value);
        assert_says(message(&path), &[words]);
        fs::write(path.join("index.json"), &good).unwrap();
    }
    // A part of more elements than its file has bytes for, although nothing overflows.
    edit_index(&path, |index| {
        for field in ["shape/0", "parts/0/shape/0", "parts/0/range/1"] {
            *index.pointer_mut(&format!("/arrays/0/{field}")).unwrap() = (u64::MAX / 128).into();
        }
    });
    assert_says(
        message(&path),
        &["array \"model.embedding.weight\": a part of", "rank_00000.safetensors"],
    );
}

#[test]
fn wrong_paths() {
    let (folder, path) = sample();
    let file = path.join("index.json");
    for opened in [
        Checkpoint::open(&file),
        Checkpoint::find(&file),
        Checkpoint::latest(&file).map(|_| unreachable!()),
    ] {
        assert_says(opened.unwrap_err(), &["index.json is not a folder: expected"]);
    }
    let nothing = folder.path().join("nothing");
    assert!(Checkpoint::latest(&nothing).unwrap().is_none());
    assert_says(
        Checkpoint::open(&nothing).unwrap_err(),
        &["nothing is no complete checkpoint"],
    );
    let empty = TempDir::new().unwrap();
    assert!(Checkpoint::latest(empty.path()).unwrap().is_none());
    assert_says(Checkpoint::find(empty.path()).unwrap_err(), &["no checkpoint in"]);
    // The folder of all, the folder of one.
    assert_eq!(Checkpoint::find(folder.path()).unwrap().iteration(), 20);
    assert_eq!(Checkpoint::find(&path).unwrap().iteration(), 20);
}

proptest! {
    /// An index that somebody else has written, checksum and all, never panics.
    #[test]
    fn an_index_of_random_numbers_is_refused_or_read(
        field in proptest::sample::select(vec![
            "/arrays/0/shape/0", "/arrays/0/parts/0/offset/0", "/arrays/0/parts/0/shape/0",
            "/arrays/0/parts/0/shape/1", "/arrays/0/parts/0/range/0", "/arrays/0/parts/0/range/1",
            "/arrays/0/parts/0/file", "/files/0/bytes", "/block_bytes", "/iteration", "/world_size",
        ]),
        number in prop_oneof![any::<u64>(), 0_u64..50, (0_u32..64).prop_map(|bit| 1_u64 << bit)],
    ) {
        let (_folder, path) = sample();
        edit_index(&path, |index| *index.pointer_mut(field).unwrap() = number.into());
        if let Ok(checkpoint) = Checkpoint::open(&path) {
            let _ = checkpoint.verify();
            let _ = checkpoint.read("model.embedding.weight", &Placement::whole([10, 4]), 0..40);
        }
    }

    /// A shard that somebody else has written never panics, even where checksums are not compared.
    #[test]
    fn a_shard_of_random_bytes_is_refused_or_read(
        position in 0_usize..300,
        bytes in proptest::collection::vec(any::<u8>(), 1..20),
    ) {
        let (_folder, path) = sample();
        let shard = path.join("rank_00000.safetensors");
        let mut content = fs::read(&shard).unwrap();
        let position = position.min(content.len() - bytes.len());
        content[position..position + bytes.len()].copy_from_slice(&bytes);
        fs::write(&shard, content).unwrap();
        let checkpoint = Checkpoint::open_with(&path, ReadConfig::new().with_skip_checksums(true)).unwrap();
        let _ = checkpoint.read("model.embedding.weight", &Placement::whole([10, 4]), 0..40);
    }
}
