//! Records of layers with shards: each rank loads its own, and refuses that of another; sizes that do not divide.

use anyhow::{Context as _, ensure};
use burn::module::Module;
use burn::store::ModuleRecord;
use burn::tensor::Bytes;
use burn_megatron::context::ParallelContext;
use burn_megatron::parameters::read_host;
use burn_megatron::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, RowParallelLinear, RowParallelLinearConfig,
    VocabParallelEmbedding, VocabParallelEmbeddingConfig,
};

use super::{Check, F32, SHARED, checks};
use crate::parity::cases::comparison::Scene;

pub const CHECKS: &[Check] = checks! {
    a_record_is_loaded_by_the_rank_that_saved_it_only: SHARED, F32;
    a_width_that_does_not_divide_names_the_layer: SHARED, F32;
};

/// One layer of every kind that has shards.
#[derive(Module, Debug)]
struct Layers {
    table: VocabParallelEmbedding,
    up: ColumnParallelLinear,
    down: RowParallelLinear,
}

fn layers(context: &ParallelContext) -> anyhow::Result<Layers> {
    let context = context.scope("net");
    Ok(Layers {
        table: VocabParallelEmbeddingConfig::new(8, 4).init(&tests::device(), &context.scope("table"))?,
        up: ColumnParallelLinearConfig::new(4, 8).init(&tests::device(), &context.scope("up"))?,
        down: RowParallelLinearConfig::new(8, 4).init(&tests::device(), &context.scope("down"))?,
    })
}

fn a_record_is_loaded_by_the_rank_that_saved_it_only(scene: &Scene) -> anyhow::Result<()> {
    let group = scene.group();
    let mine = layers(&scene.context)?;
    let expected = read_host(mine.down.weight.val());
    let bytes = mine.into_record().into_bytes()?;
    // Every rank's file, where all can read it.
    let mut lengths = vec![0_i64; group.size()];
    group.all_gather(&[bytes.len() as i64], &mut lengths)?;
    ensure!(lengths.iter().all(|&length| length == lengths[0]), "{lengths:?}");
    let mut files = vec![0; bytes.len() * group.size()];
    group.all_gather(&bytes, &mut files)?;
    for (rank, file) in files.chunks_exact(bytes.len()).enumerate() {
        let record = ModuleRecord::from_bytes(Bytes::from_bytes_vec(file.to_vec()))?;
        let loaded = scene.context.load_record(layers(&scene.context)?, record);
        if rank == group.rank() {
            let values = read_host(loaded?.down.weight.val());
            ensure!(values == expected, "its own record has other values");
            continue;
        }
        let message = loaded.err().context("another rank's record was loaded")?.to_string();
        let size = group.size();
        let beginning = format!(
            "tensor rank {} of {size} cannot load this record into net.table: it was saved by tensor rank {rank} of \
             {size}, and this rank holds weight ",
            group.rank()
        );
        ensure!(message.starts_with(&beginning), "{message:?}");
    }
    Ok(())
}

fn a_width_that_does_not_divide_names_the_layer(scene: &Scene) -> anyhow::Result<()> {
    let context = scene.context.scope("encoder").scope("mlp.fc");
    let column = ColumnParallelLinearConfig::new(4, 9).init(&tests::device(), &context);
    let row = RowParallelLinearConfig::new(9, 4).init(&tests::device(), &context);
    for (message, what) in [
        (
            column.err().map(|error| error.to_string()),
            "the width of a column-parallel matrix",
        ),
        (
            row.err().map(|error| error.to_string()),
            "the input width of a row-parallel matrix",
        ),
    ] {
        let message = message.context("it was accepted")?;
        let expected = format!(
            "encoder.mlp.fc: {what} must be divisible by tensor_parallel_size = {}, got 9; the nearest valid values \
             are 8 and ",
            scene.size()
        );
        ensure!(message.starts_with(&expected), "{message:?}");
    }
    Ok(())
}
