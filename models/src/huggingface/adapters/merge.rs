//! [`add_adapters`]: a weight with what its adapters add to it.

use burn::tensor::TensorData;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::parameters::Placement;
use rayon::prelude::*;

use super::sites::{AdapterFactor, AdapterSite};
use crate::huggingface::{HuggingFaceError, Parameter};

/// Returns a weight of a checkpoint, `[elements]`, with `scale · A B` of each of the adapters that are of it: added in
/// f64, and left so. A weight without adapters keeps its type.
///
/// # Errors
/// The factors cannot be read, or have another shape.
pub fn add_adapters(
    weight: TensorData,
    parameter: &Parameter,
    sites: &[AdapterSite],
    (rank, scale): (usize, f64),
    checkpoint: &Checkpoint,
) -> Result<TensorData, HuggingFaceError> {
    let layer = parameter.name.strip_suffix(".weight");
    let mut of_weight = sites
        .iter()
        .filter(|site| Some(site.layer.as_str()) == layer)
        .peekable();
    if of_weight.peek().is_none() {
        return Ok(weight);
    }
    let shape = weight.shape().clone();
    let mut sums: Vec<f64> = weight.iter::<f64>().collect();
    for site in of_weight {
        let [a, b] = [AdapterFactor::A, AdapterFactor::B].map(|factor| read(checkpoint, site, factor, rank));
        let (a, b) = (a?, b?);
        let (width, features, columns) = (sums.len() / site.d_input, site.num_features(), site.columns());
        // [features, rank]
        let b: Vec<f64> = (0..features)
            .flat_map(|feature| b[feature..].iter().step_by(features).copied())
            .collect();
        let rows = sums.par_chunks_exact_mut(width).zip(a.par_chunks_exact(rank));
        rows.for_each(|(row, a)| {
            for (&column, b) in columns.iter().zip(b.chunks_exact(rank)) {
                row[column] += scale * a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            }
        });
    }
    Ok(TensorData::new(sums, shape))
}

/// A factor's elements, row-major.
fn read(
    checkpoint: &Checkpoint,
    site: &AdapterSite,
    factor: AdapterFactor,
    rank: usize,
) -> Result<Vec<f64>, HuggingFaceError> {
    let placement = Placement::whole(site.logical_shape(factor, rank));
    let length = placement.local_len();
    let stored = checkpoint.read(&site.array_name(factor), &placement, 0..length)?;
    Ok(TensorData::from_bytes(stored.bytes, [length], stored.dtype)
        .iter()
        .collect())
}
