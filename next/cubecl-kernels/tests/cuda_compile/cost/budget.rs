//! The kernels that have a budget, and their figures.

use burn::tensor::DType;
use kernel_cost::budget::{Figure, of_row};
use kernel_cost::gpu::Gpu;

use super::Measured;
use crate::operations::Operation;

/// The sizes that stand for all: rows of a model of 1.3 billion parameters, those that several blocks share, Llama 3's
/// projection, GPT-2's vocabulary, an optimizer's buffer, and heads of 64 and 128 elements.
const SHAPES: [&str; 10] = [
    "8192 x 2048",
    "8192 x 8192",
    "8192 x 12288",
    "8192 x 2 x 8192",
    "8192 x 8 x (4 + 2) x 128",
    "8 x 12 x 2048 x 2048",
    "8192 x 50304",
    "16777216",
    "8 x 12 heads x 1024 x 64",
    "8 x 16 heads x 1024 x 128",
];

pub fn has_budget(operation: &Operation) -> bool {
    operation.dtype == DType::BF16 && SHAPES.contains(&operation.shape.as_str())
}

/// Returns the figures of what was measured on an A100.
pub fn figures(measured: &[Measured]) -> Vec<Figure> {
    let on_a100 = measured.iter().filter(|measured| measured.row.gpu == Gpu::A100_80.name);
    let figures = on_a100.flat_map(|measured| {
        let subject = format!("{}, {}", measured.title(), measured.row.kernel);
        of_row(&subject, &measured.row)
    });
    figures.collect()
}
