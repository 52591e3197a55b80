//! Where the buckets are: in memory that the ranks of a data-parallel group share, made once, gone with the module.

use anyhow::ensure;
use burn::module::Module;
use burn_megatron::collectives::shared_memory_bytes;

use super::nets::{ConvNet, Net, wrap, wrapped_step};
use super::{Check, DP2, DP4, F64, ONE, checks};
use crate::parity::cases::comparison::Scene;

pub const CHECKS: &[Check] = checks! {
    buckets_are_shared_by_the_ranks_and_go_with_the_module: &[DP2, DP4], F64;
    one_rank_shares_nothing: &[ONE], F64;
};

/// What `/proc` calls the memory of a shared buffer.
const MAPPING: &str = "memfd:burn-megatron-buffer";

/// The shared buffers, of this rank and of others, that this process has mapped.
fn mappings() -> anyhow::Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    Ok(maps.lines().filter(|line| line.contains(MAPPING)).count())
}

/// The descriptors that this process has of shared buffers.
fn descriptors() -> anyhow::Result<usize> {
    let mut open = 0;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        // The descriptor that reads the folder is gone when it is looked at.
        let target = std::fs::read_link(entry?.path()).unwrap_or_default();
        open += usize::from(target.to_string_lossy().contains(MAPPING));
    }
    Ok(open)
}

fn buckets_are_shared_by_the_ranks_and_go_with_the_module(scene: &Scene) -> anyhow::Result<()> {
    let ranks = scene.context.data_group().size();
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    let (bytes, mapped) = (shared_memory_bytes(), mappings()?);
    ensure!(bytes > 0 && mapped > 0, "{bytes} bytes in {mapped} mappings");
    ensure!(mapped.is_multiple_of(ranks), "{mapped} mappings, {ranks} ranks");
    ensure!(descriptors()? == 0, "{} descriptors are open", descriptors()?);
    for step in 0..3 {
        drop(wrapped_step(&mut wrapped, scene, step)?);
    }
    // The same fields from a record: other identifiers, in the same places.
    let record = wrapped.module().clone().into_record();
    wrapped.update(|net| net.load_record(record))?;
    ensure!(
        (shared_memory_bytes(), mappings()?) == (bytes, mapped),
        "steps and records made other buckets: {} bytes in {} mappings, not {bytes} in {mapped}",
        shared_memory_bytes(),
        mappings()?
    );
    // On one rank the module goes first, on the others the step's gradients do.
    let gradients = wrapped_step(&mut wrapped, scene, 3)?;
    match scene.context.rank() {
        0 => {
            drop(wrapped);
            drop(gradients);
        }
        _ => {
            drop(gradients);
            drop(wrapped);
        }
    }
    let left = (shared_memory_bytes(), mappings()?);
    ensure!(left == (0, 0), "{left:?} bytes and mappings are left");
    Ok(())
}

fn one_rank_shares_nothing(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    drop(wrapped_step(&mut wrapped, scene, 0)?);
    let made = (shared_memory_bytes(), mappings()?);
    ensure!(made == (0, 0), "{made:?} bytes and mappings");
    Ok(())
}
