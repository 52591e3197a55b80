//! The trial that equal kernels have one source, so that what was compiled is found again: CubeCL writes some of their
//! parts in another order each time.

use anyhow::{Context, ensure};
use burn::tensor::DType;
use cuda_source::{Architecture, CudaSourceDevice};
use libtest_mimic::Trial;

use crate::launches::launches_on;
use crate::operations::Operation;

/// The operation whose kernels have most arrays in shared memory.
const NAME: &str = "flash_attention, packed, causal, dropout";

/// How many devices write the kernels: two orders of ten arrays are equal once in millions.
const DEVICES: u16 = 4;

/// The trial; each device writes the kernels for itself.
pub fn trial(operations: &[Operation]) -> Trial {
    let is_it = |operation: &&Operation| operation.name == NAME && operation.dtype == DType::BF16;
    let operation = operations.iter().find(is_it).cloned();
    Trial::test("equal kernels have one source", move || {
        Ok(judge(&operation.context("no such operation")?)?)
    })
}

fn judge(operation: &Operation) -> anyhow::Result<()> {
    let sources = (0..DEVICES).map(|index| {
        let device = CudaSourceDevice {
            index,
            ..CudaSourceDevice::compiling(Architecture::Sm80)
        };
        let kernels = launches_on(device, operation.dtype, |setting| (operation.run)(setting))?;
        Ok(kernels.iter().map(|kernel| kernel.source.clone()).collect())
    });
    let sources = sources.collect::<anyhow::Result<Vec<Vec<_>>>>()?;
    for other in &sources[1..] {
        ensure!(other.len() == sources[0].len(), "other kernels are launched");
        let differs = |(one, other): &(_, _)| one != other;
        if let Some((one, other)) = std::iter::zip(&sources[0], other).find(differs) {
            let lines = std::iter::zip(one.lines(), other.lines()).find(|(one, other)| one != other);
            anyhow::bail!("a kernel is written in two ways: {lines:?}");
        }
    }
    Ok(())
}
