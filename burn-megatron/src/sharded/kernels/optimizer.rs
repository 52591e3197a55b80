//! The fused update of parameters: each rank its part of them.

use burn::tensor::Tensor;
use cubecl_kernels::adamw::AdamWStep;

use super::super::Sharded;
use super::super::apply::apply;
use super::super::rules::pointwise::Each;
use super::{FloatSharded, local, placed, primitive, tensor};
use crate::collectives::CollectiveBackend;

pub(super) fn adamw<B: CollectiveBackend, const D: usize>(
    tensors: [Tensor<Sharded<B>, D>; 3],
    gradient: Tensor<Sharded<B>, D>,
    step: &AdamWStep,
) -> [Tensor<Sharded<B>, D>; 3] {
    let [parameter, moment_1, moment_2] = tensors.map(placed);
    let operands = (parameter, moment_1, moment_2, placed(gradient));
    let rule = || Box::new(Each { results: 3 }) as _;
    let updated: Vec<Option<FloatSharded<B>>> = apply("adamw", operands, rule, |locals, _| {
        let (parameter, moment_1, moment_2, gradient) = locals;
        let tensors = [parameter, moment_1, moment_2].map(local::<B, D>);
        let updated = B::adamw_elements(tensors, local(gradient), step);
        updated.map(|tensor| Some(primitive(tensor))).to_vec()
    });
    let mut updated = updated.into_iter().flatten().map(tensor);
    std::array::from_fn(|_| updated.next().expect("of parameter and moments"))
}
