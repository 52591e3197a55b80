//! Tests of whole checkpoints, written by one process for several ranks.

mod bad_input;
mod layouts;
mod writing;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use burn::tensor::{Bytes, DType};
use serde_json::Value;
use tempfile::TempDir;

use super::checksum::BLOCK_BYTES;
use super::folder::SaveDirectory;
use super::index::Index;
use super::part::PartSpec;
use super::plan::{join, plan_shard, shard_name};
use super::shard::write_shard;
use super::*;
use crate::parameters::Placement;

/// A folder that costs no disk: most of the time of a save goes into waiting for it.
fn in_memory() -> TempDir {
    TempDir::new_in("/dev/shm").unwrap()
}

/// The elements of a logical array that tell where they are: bit patterns, to be compared exactly.
fn element(logical: usize) -> u64 {
    0x0101_0101_0101_0101_u64.wrapping_mul(logical as u64 + 1)
}

/// Checks that a message has some words.
fn assert_says(message: impl ToString, words: &[&str]) {
    let message = message.to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in: {message}");
    }
}

/// Returns the bytes that a read must give of an array whose elements are [`element`].
fn expected(placement: &Placement, range: Range<usize>, dtype: DType) -> Bytes {
    with_padding(0, placement, range, dtype)
}

fn with_padding(padding: u64, placement: &Placement, range: Range<usize>, dtype: DType) -> Bytes {
    let mut elements = vec![padding; placement.local_len()];
    for run in placement.runs() {
        for i in 0..run.length {
            elements[run.local + i] = element(run.logical + i);
        }
    }
    let bytes = |element: &u64| element.to_le_bytes()[..dtype.size()].to_vec();
    Bytes::from_bytes_vec(elements[range].iter().flat_map(bytes).collect())
}

fn part(name: &str, placement: Placement, range: Range<usize>, dtype: DType) -> ArrayPart {
    ArrayPart {
        name: name.into(),
        // What a rank holds has padding that is not zero.
        data: with_padding(u64::MAX, &placement, range.clone(), dtype),
        placement,
        range,
        dtype,
    }
}

fn whole(name: &str, placement: Placement) -> ArrayPart {
    let range = 0..placement.local_len();
    part(name, placement, range, DType::F32)
}

/// Plans what each rank writes and joins it, as a save does.
fn planned(ranks: &[Vec<ArrayPart>]) -> Result<Index, String> {
    let mut summaries = Vec::new();
    for (rank, parts) in ranks.iter().enumerate() {
        let specs: Vec<PartSpec> = parts.iter().map(ArrayPart::spec).collect();
        summaries.push(plan_shard(rank, 20, &specs)?.1);
    }
    let (arrays, files) = join(&summaries)?;
    Ok(Index {
        library_version: "0.0.0".into(),
        iteration: 20,
        world_size: ranks.len(),
        layout: Value::Null,
        block_bytes: BLOCK_BYTES,
        files,
        arrays,
        state: serde_json::json!({ "samples": 640 }),
    })
}

/// Writes the checkpoint of iteration 20 for several ranks, one after the other, with a last word on its index.
fn write_with(directory: &Path, ranks: &[Vec<ArrayPart>], change: impl FnOnce(&mut Index)) -> PathBuf {
    let held = SaveDirectory::hold(directory).unwrap();
    let draft = held.begin(20).unwrap();
    let mut index = planned(ranks).unwrap();
    for file in &mut index.files {
        let parts = &ranks[file.rank];
        let specs: Vec<PartSpec> = parts.iter().map(ArrayPart::spec).collect();
        let (plan, _) = plan_shard(file.rank, 20, &specs).unwrap();
        let path = draft.path.join(shard_name(file.rank));
        let data = |number: usize| Ok(parts[number].data.clone());
        file.blocks = write_shard(&path, &plan, &specs, data).unwrap();
        assert_eq!(file.bytes, path.metadata().unwrap().len());
    }
    change(&mut index);
    index.write(&draft.path).unwrap();
    held.commit(draft).unwrap()
}

fn write(directory: &Path, ranks: &[Vec<ArrayPart>]) -> Checkpoint {
    let path = write_with(directory, ranks, |_| {});
    Checkpoint::open(path).unwrap()
}

/// `cargo test --release -p burn-megatron -- --ignored --nocapture index_of_4096_shards`
#[test]
#[ignore = "a measurement"]
fn index_of_4096_shards() {
    const RANKS: usize = 4096;
    let seconds = |begun: std::time::Instant| begun.elapsed().as_secs_f64();
    // Eight tensor-parallel ranks, sixteen stages, and the optimizer's state over 32 data-parallel ranks.
    let ranks = (0..RANKS).map(|rank| {
        let (tensor, shard, stage) = (rank % 8, rank / 8 % 32, rank / 256);
        let of_layer = |layer: usize| {
            ["qkv", "proj", "fc1", "fc2"].map(|matrix| {
                let placement = Placement::shard(&[256, 512], 0, tensor, 8);
                let each = placement.local_len() / 32;
                let name = format!("optimizer.exp_avg.layers.{}.{matrix}.weight", 8 * stage + layer);
                part(&name, placement, each * shard..each * (shard + 1), DType::F32)
            })
        };
        (0..8).flat_map(of_layer).collect::<Vec<_>>()
    });
    let ranks: Vec<_> = ranks.collect();
    let begun = std::time::Instant::now();
    let mut index = planned(&ranks).unwrap();
    for file in &mut index.files {
        file.blocks = vec![0; file.bytes.div_ceil(BLOCK_BYTES) as usize];
    }
    println!("planned and joined in {:.2} s", seconds(begun));
    let folder = in_memory();
    let begun = std::time::Instant::now();
    index.write(folder.path()).unwrap();
    let bytes = folder.path().join("index.json").metadata().unwrap().len();
    println!("written in {:.2} s: {:.1} MB", seconds(begun), bytes as f64 / 1e6);
    let begun = std::time::Instant::now();
    let parts: usize = index.arrays.iter().map(|array| array.parts.len()).sum();
    assert_eq!(parts, RANKS * 32);
    println!("{parts} parts of {} arrays", index.arrays.len());
    Index::read(folder.path()).unwrap();
    println!("read in {:.2} s", seconds(begun));
}
