//! The trial that equal kernels have one source, so that what was compiled is found again.

use anyhow::{Context, ensure};
use burn::tensor::DType;
use cuda_emulator::Architecture;
use libtest_mimic::Trial;

use crate::emulated::devices;
use crate::launches::launched_on;
use crate::operations::Operation;

/// The operation whose kernels have most arrays in shared memory.
const NAME: &str = "flash_attention, packed, causal, dropout";

/// The trial; each of two equal devices writes the kernels for itself.
pub fn trial(operations: &[Operation]) -> Trial {
    let is_it = |operation: &&Operation| operation.name == NAME && operation.dtype == DType::BF16;
    let operation = operations.iter().find(is_it).cloned();
    Trial::test("equal kernels have one source", move || {
        Ok(judge(&operation.context("no such operation")?)?)
    })
}

fn judge(operation: &Operation) -> anyhow::Result<()> {
    let architecture = Architecture::Sm80;
    let sources = devices(architecture).map(|device| {
        let kernels = launched_on(device, architecture, operation.dtype, |setting| {
            (operation.run)(setting)
        })?;
        Ok(kernels.into_iter().map(|kernel| kernel.source).collect())
    });
    let sources = sources.collect::<anyhow::Result<Vec<Vec<String>>>>()?;
    let [ones, others] = &sources[..] else {
        anyhow::bail!("{} equal devices, expected two", sources.len());
    };
    ensure!(ones.len() == others.len(), "other kernels are launched");
    let differs = |(one, other): &(&String, &String)| one != other;
    if let Some((one, other)) = std::iter::zip(ones, others).find(differs) {
        let lines = std::iter::zip(one.lines(), other.lines()).find(|(one, other)| one != other);
        anyhow::bail!("a kernel is written in two ways: {lines:?}");
    }
    Ok(())
}
