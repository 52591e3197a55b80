//! `Dropout` on every rank's part against dropout of the whole.

use std::collections::HashSet;

use anyhow::ensure;
use burn::tensor::Tensor;
use burn_megatron::random::{DropoutConfig, DropoutSite, StepCoordinates, TokenMap};

use super::linear::local_shape;
use super::{BOTH_TYPES, Check, SEQUENCE, TENSOR, checks};
use crate::parity::cases::comparison::{Pass, Scene};

pub const CHECKS: &[Check] = checks! {
    dropout_of_token_shards_is_that_of_the_whole: SEQUENCE, BOTH_TYPES;
    dropout_of_attention_heads_is_that_of_the_whole: TENSOR, BOTH_TYPES;
};

const SITE: DropoutSite = DropoutSite { layer: 3, number: 1 };
const SAMPLES: [u64; 3] = [5, 11, 12];

fn step(seq_length: usize) -> StepCoordinates {
    StepCoordinates {
        seed: 9,
        iteration: 4,
        tokens: TokenMap::of_samples(&SAMPLES, seq_length),
    }
}

/// Between tensor-parallel regions: a rank's tokens, whose shards end in the middle of a sample.
fn dropout_of_token_shards_is_that_of_the_whole(scene: &Scene) -> anyhow::Result<()> {
    let (seq_length, d_model) = (4, 33);
    let shape = [SAMPLES.len() * seq_length, d_model];
    let input = scene.random("input", shape[0] * d_model);
    let output_gradient = scene.random("output gradient", shape[0] * d_model);
    let dropout = DropoutConfig::new(0.3).init(SITE);
    let whole = Pass::run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), shape),
        |input| dropout.forward(input, &step(seq_length)),
    );
    every_row_has_its_own_mask(&whole, d_model)?;
    let placement = scene.placement(&shape, scene.token_cut());
    let group = scene.group();
    let part = Pass::run(
        scene.part(&input, &placement, local_shape(scene, shape)),
        scene.part(&output_gradient, &placement, local_shape(scene, shape)),
        |input| dropout.forward(input, &step(seq_length).shard(group.rank(), group.size())),
    );
    scene.exact("output", &part.output, &whole.output, &placement)?;
    scene.exact(
        "input gradient",
        &part.input_gradient,
        &whole.input_gradient,
        &placement,
    )
}

/// Inside a tensor-parallel region: all tokens, a rank's heads.
fn dropout_of_attention_heads_is_that_of_the_whole(scene: &Scene) -> anyhow::Result<()> {
    let (seq_length, keys, n_heads) = (4, 41, 4);
    let shape = [SAMPLES.len(), n_heads, seq_length, keys];
    let len = shape.iter().product();
    let (input, output_gradient) = (scene.random("input", len), scene.random("output gradient", len));
    let dropout = DropoutConfig::new(0.3).init(SITE);
    let run = |input: Tensor<4>, output_gradient, first_head| {
        Pass::run(input, output_gradient, |input| {
            dropout.forward_attention(input, &step(seq_length), first_head)
        })
    };
    let whole = run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), shape),
        0,
    );
    every_row_has_its_own_mask(&whole, keys)?;
    let placement = scene.placement(&shape, Some(1));
    let local = [shape[0], n_heads / scene.size(), seq_length, keys];
    let part = run(
        scene.part(&input, &placement, local),
        scene.part(&output_gradient, &placement, local),
        placement.offset()[1],
    );
    scene.exact("output", &part.output, &whole.output, &placement)?;
    scene.exact(
        "input gradient",
        &part.input_gradient,
        &whole.input_gradient,
        &placement,
    )
}

/// Dropout that does nothing, or the same everywhere, would pass every comparison.
fn every_row_has_its_own_mask(whole: &Pass, columns: usize) -> anyhow::Result<()> {
    let masks = whole.output.chunks_exact(columns);
    let masks = masks.map(|row| row.iter().map(|&value| value == 0.0).collect::<Vec<_>>());
    let different: HashSet<Vec<bool>> = masks.collect();
    let rows = whole.output.len() / columns;
    ensure!(different.len() == rows, "{} masks for {rows} rows", different.len());
    let fallen = whole.output.iter().filter(|&&value| value == 0.0).count();
    ensure!(0 < fallen && fallen < whole.output.len() / 2, "{fallen} elements fell");
    Ok(())
}
