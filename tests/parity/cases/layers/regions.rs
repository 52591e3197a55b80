//! Every region of `mappings` against its definition, on whole numbers: equal to the bit.

use anyhow::ensure;
use burn::tensor::Tensor;
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::mappings::{
    copy_to_tensor_region, gather_from_sequence_region, gather_from_tensor_region, reduce_from_tensor_region,
    reduce_scatter_to_sequence_region, scatter_to_tensor_region,
};

use super::{BOTH_TYPES, Check, TENSOR, checks};
use crate::parity::cases::comparison::{Pass, Scene};

pub const CHECKS: &[Check] = checks! {
    copy_keeps_forward_and_sums_backward: TENSOR, BOTH_TYPES;
    reduce_sums_forward_and_keeps_backward: TENSOR, BOTH_TYPES;
    scatter_splits_forward_and_gathers_backward: TENSOR, BOTH_TYPES;
    gather_gathers_forward_and_splits_backward: TENSOR, BOTH_TYPES;
    sequence_gather_gathers_forward_and_reduce_scatters_backward: TENSOR, BOTH_TYPES;
    sequence_reduce_scatter_sums_forward_and_gathers_backward: TENSOR, BOTH_TYPES;
};

/// The name of the case in which a region must refuse its input.
pub const INDIVISIBLE: &str = "split_an_odd_dimension";

/// Along every dimension four ranks get an odd number, or one.
const SHAPE: [usize; 3] = [12, 20, 4];

/// A dense array of three dimensions.
#[derive(Clone, Debug, PartialEq)]
struct Array {
    values: Vec<f64>,
    shape: [usize; 3],
}

impl Array {
    /// Different on every rank; every rank can name any rank's.
    fn of_rank(scene: &Scene, name: &str, rank: usize, shape: [usize; 3]) -> Self {
        Self {
            values: scene.integers(&format!("{name} of rank {rank}"), shape.iter().product()),
            shape,
        }
    }

    fn sum(arrays: &[Array]) -> Self {
        let mut sum = arrays[0].clone();
        for array in &arrays[1..] {
            sum.values.iter_mut().zip(&array.values).for_each(|(a, b)| *a += b);
        }
        sum
    }

    fn part(&self, dimension: usize, index: usize, count: usize) -> Self {
        let mut shape = self.shape;
        shape[dimension] /= count;
        let offset = index * shape[dimension];
        Self::build(shape, |mut at| {
            at[dimension] += offset;
            self.at(at)
        })
    }

    fn join(parts: &[Array], dimension: usize) -> Self {
        let mut shape = parts[0].shape;
        let length = shape[dimension];
        shape[dimension] *= parts.len();
        Self::build(shape, |mut at| {
            let part = &parts[at[dimension] / length];
            at[dimension] %= length;
            part.at(at)
        })
    }

    fn build(shape: [usize; 3], value: impl Fn([usize; 3]) -> f64) -> Self {
        let [a, b, c] = shape;
        let values = (0..a * b * c).map(|index| value([index / (b * c), index / c % b, index % c]));
        Self {
            values: values.collect(),
            shape,
        }
    }

    fn at(&self, [i, j, k]: [usize; 3]) -> f64 {
        self.values[(i * self.shape[1] + j) * self.shape[2] + k]
    }

    fn tensor(&self, scene: &Scene) -> Tensor<3> {
        scene.tensor(self.values.clone(), self.shape)
    }
}

/// The inputs and the output gradients of all ranks.
struct Ranks {
    inputs: Vec<Array>,
    output_gradients: Vec<Array>,
}

impl Ranks {
    fn new(scene: &Scene, input: [usize; 3], output: [usize; 3]) -> Self {
        let all = |name, shape| {
            (0..scene.size())
                .map(|rank| Array::of_rank(scene, name, rank, shape))
                .collect()
        };
        Self {
            inputs: all("input", input),
            output_gradients: all("output gradient", output),
        }
    }

    /// Fails unless the region gives this rank exactly this output and this input gradient.
    fn check(
        &self,
        scene: &Scene,
        output: &Array,
        input_gradient: &Array,
        region: impl FnOnce(Tensor<3>, &ProcessGroup) -> Tensor<3>,
    ) -> anyhow::Result<()> {
        let rank = scene.group().rank();
        let pass = Pass::run(
            self.inputs[rank].tensor(scene),
            self.output_gradients[rank].tensor(scene),
            |input| region(input, scene.group()),
        );
        ensure!(
            pass.output == output.values,
            "rank {rank}: the output is not as defined"
        );
        let same = pass.input_gradient == input_gradient.values;
        ensure!(same, "rank {rank}: the input's gradient is not as defined");
        Ok(())
    }
}

fn with_length(dimension: usize, factor: usize, divisor: usize) -> [usize; 3] {
    let mut shape = SHAPE;
    shape[dimension] = shape[dimension] * factor / divisor;
    shape
}

fn copy_keeps_forward_and_sums_backward(scene: &Scene) -> anyhow::Result<()> {
    let ranks = Ranks::new(scene, SHAPE, SHAPE);
    let sum = Array::sum(&ranks.output_gradients);
    let own = &ranks.inputs[scene.group().rank()];
    ranks.check(scene, own, &sum, copy_to_tensor_region)
}

fn reduce_sums_forward_and_keeps_backward(scene: &Scene) -> anyhow::Result<()> {
    let ranks = Ranks::new(scene, SHAPE, SHAPE);
    let sum = Array::sum(&ranks.inputs);
    let own = &ranks.output_gradients[scene.group().rank()];
    ranks.check(scene, &sum, own, reduce_from_tensor_region)
}

fn scatter_splits_forward_and_gathers_backward(scene: &Scene) -> anyhow::Result<()> {
    let (rank, size) = (scene.group().rank(), scene.size());
    for dimension in 0..3 {
        let ranks = Ranks::new(scene, SHAPE, with_length(dimension, 1, size));
        let part = ranks.inputs[rank].part(dimension, rank, size);
        let joined = Array::join(&ranks.output_gradients, dimension);
        ranks.check(scene, &part, &joined, |input, group| {
            scatter_to_tensor_region(input, dimension, group)
        })?;
    }
    Ok(())
}

fn gather_gathers_forward_and_splits_backward(scene: &Scene) -> anyhow::Result<()> {
    let (rank, size) = (scene.group().rank(), scene.size());
    for dimension in 0..3 {
        let ranks = Ranks::new(scene, SHAPE, with_length(dimension, size, 1));
        let joined = Array::join(&ranks.inputs, dimension);
        let part = ranks.output_gradients[rank].part(dimension, rank, size);
        ranks.check(scene, &joined, &part, |input, group| {
            gather_from_tensor_region(input, dimension, group)
        })?;
    }
    Ok(())
}

fn sequence_gather_gathers_forward_and_reduce_scatters_backward(scene: &Scene) -> anyhow::Result<()> {
    let (rank, size) = (scene.group().rank(), scene.size());
    let ranks = Ranks::new(scene, SHAPE, with_length(0, size, 1));
    let joined = Array::join(&ranks.inputs, 0);
    let part = Array::sum(&ranks.output_gradients).part(0, rank, size);
    ranks.check(scene, &joined, &part, gather_from_sequence_region)
}

fn sequence_reduce_scatter_sums_forward_and_gathers_backward(scene: &Scene) -> anyhow::Result<()> {
    let (rank, size) = (scene.group().rank(), scene.size());
    let ranks = Ranks::new(scene, SHAPE, with_length(0, 1, size));
    let part = Array::sum(&ranks.inputs).part(0, rank, size);
    let joined = Array::join(&ranks.output_gradients, 0);
    ranks.check(scene, &part, &joined, reduce_scatter_to_sequence_region)
}

/// Five rows over two ranks: panics.
pub fn split_an_odd_dimension(scene: &Scene) {
    let input: Tensor<2> = scene.tensor(vec![0.0; 10], [5, 2]);
    scatter_to_tensor_region(input, 0, scene.group());
}
