//! The arrays of the cases: an embedding by rows with padding, a matrix by columns, its moment cut anywhere, and a
//! norm.

use std::ops::Range;

use burn::tensor::{Bytes, DType};
use burn_megatron::checkpoint::{ArrayPart, Checkpoint};
use burn_megatron::parameters::Placement;

const EMBEDDING: [usize; 2] = [101, 8];
const MATRIX: [usize; 3] = [12, 3, 24];
const NORM: [usize; 1] = [24];

/// The value of an element at an iteration.
fn value(iteration: u64, logical: usize) -> f32 {
    (iteration * 10_000) as f32 + logical as f32
}

/// An array of a layout of `count` ranks, as rank `rank` has it.
struct Held {
    name: &'static str,
    placement: Placement,
    range: Range<usize>,
    dtype: DType,
    /// Whether this rank stores it.
    is_owned: bool,
}

fn held(rank: usize, count: usize) -> Vec<Held> {
    let rows = EMBEDDING[0].div_ceil(count);
    let array = |name, placement: Placement| Held {
        name,
        range: 0..placement.local_len(),
        placement,
        dtype: DType::F32,
        is_owned: true,
    };
    // A sharded optimizer: the matrix of one tensor-parallel rank, cut into one piece per rank.
    let columns = Placement::shard(&MATRIX, 2, 0, 1);
    let cut = |index: usize| index * columns.local_len() / count;
    vec![
        array(
            "model.embedding",
            Placement::new(EMBEDDING, [rank * rows, 0], [rows, EMBEDDING[1]]),
        ),
        array("model.matrix", Placement::shard(&MATRIX, 2, rank, count)),
        Held {
            range: cut(rank)..cut(rank + 1),
            dtype: DType::F64,
            ..array("optimizer.moment_1.matrix", columns.clone())
        },
        Held {
            is_owned: rank == count - 1,
            ..array("model.norm", Placement::whole(NORM))
        },
    ]
}

/// The elements that a rank holds; padding is `padding`.
fn values(held: &Held, iteration: u64, padding: f32) -> Bytes {
    let mut values = vec![padding; held.placement.local_len()];
    for run in held.placement.runs() {
        for i in 0..run.length {
            values[run.local + i] = value(iteration, run.logical + i);
        }
    }
    let values = &values[held.range.clone()];
    match held.dtype {
        DType::F64 => Bytes::from_elems(values.iter().map(|v| f64::from(*v)).collect()),
        _ => Bytes::from_elems(values.to_vec()),
    }
}

/// What rank `rank` of `count` stores.
pub fn parts(rank: usize, count: usize, iteration: u64) -> Vec<ArrayPart> {
    held(rank, count)
        .into_iter()
        .filter(|held| held.is_owned)
        .map(|held| ArrayPart {
            name: held.name.into(),
            data: values(&held, iteration, f32::NAN),
            placement: held.placement,
            range: held.range,
            dtype: held.dtype,
        })
        .collect()
}

/// Returns an array that takes about `bytes` bytes on each rank.
pub fn large_part(rank: usize, count: usize, bytes: usize) -> ArrayPart {
    let placement = Placement::shard(&[count * bytes / 4], 0, rank, count);
    let data = Bytes::from_elems(vec![1.0_f32; bytes / 4]);
    ArrayPart::whole("model.large", placement, DType::F32, data)
}

/// Checks that a checkpoint has, for rank `rank` of `count`, the values of its iteration.
pub fn check(checkpoint: &Checkpoint, rank: usize, count: usize) -> Result<(), String> {
    for held in held(rank, count) {
        let read = checkpoint.read(held.name, &held.placement, held.range.clone());
        let read = read.map_err(|error| error.to_string())?;
        let expected = values(&held, checkpoint.iteration(), 0.0);
        if read.dtype != held.dtype || *read.bytes != *expected {
            return Err(format!("rank {rank} of {count} reads other values of {}", held.name));
        }
    }
    Ok(())
}
