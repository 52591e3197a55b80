//! `ElementWise`: optimizers that update each element of a parameter by itself, so that they may be given any part of
//! one.

use burn::optim::{AdaGrad, Adam, AdamW, Adan, LearningRate, Lion, Optimizer, RmsProp, Sgd};
use burn::tensor::Tensor;
use cubecl_kernels::adamw::AdamWStep;

use super::factored_form::FactoredForm;
use super::matrix_form::MatrixForm;

/// An optimizer whose update of an element depends on that element, its gradient and its state only: not on other
/// elements, and not on the parameter's shape.
///
/// Or one that says by [`matrix_form`](Self::matrix_form) what it needs whole matrices for, as this project's
/// [`Muon`](crate::optimizer::Muon) does, or by [`factored_form`](Self::factored_form) that it needs sums over whole
/// ones, as [`Adafactor`](crate::optimizer::Adafactor) does.
///
/// Such an optimizer may be given a shard of a parameter, or a flat piece of it, and does what it would do with the
/// whole. burn's [`Adam`], [`AdamW`], [`Sgd`], [`Lion`], [`RmsProp`], [`AdaGrad`] and [`Adan`] are element-wise, and so
/// are this project's [`AdamW`](crate::optimizer::AdamW), [`Adam`](crate::optimizer::Adam),
/// [`Lion`](crate::optimizer::Lion) and [`Sgd`](crate::optimizer::Sgd). burn's `Muon` is not: it orthogonalises whole
/// matrices. It is refused when a program is compiled:
///
/// ```compile_fail,E0277
/// use burn::optim::MuonConfig;
/// use burn_megatron::data_parallel::ElementWiseOptimizer;
///
/// let optimizer = ElementWiseOptimizer::from(MuonConfig::new().build());
/// ```
///
/// An optimizer of your own that is element-wise says so by an empty implementation:
///
/// ```
/// use burn::optim::{LearningRate, Optimizer};
/// use burn::tensor::{Device, Tensor};
/// use burn_megatron::data_parallel::ElementWise;
///
/// /// Moves each element by the learning rate, against the sign of its gradient.
/// #[derive(Clone)]
/// struct SignDescent;
///
/// impl Optimizer for SignDescent {
///     type State<const D: usize> = ();
///
///     fn step<const D: usize>(
///         &self,
///         learning_rate: LearningRate,
///         tensor: Tensor<D>,
///         gradient: Tensor<D>,
///         _: Option<()>,
///     ) -> (Tensor<D>, Option<()>) {
///         (tensor - gradient.sign().mul_scalar(learning_rate), None)
///     }
///
///     fn to_device<const D: usize>(_: (), _: &Device) {}
/// }
///
/// impl ElementWise for SignDescent {}
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not known to be an element-wise optimizer: it may need whole matrices, and here it would \
               get parts of them",
    label = "needs an element-wise optimizer",
    note = "element-wise are burn's Adam, AdamW, Sgd, Lion, RmsProp, AdaGrad and Adan, and burn_megatron's AdamW, \
            Adam, Lion and Sgd; burn's Muon is not: `burn_megatron::optimizer::Muon` runs on sharded and cut \
            matrices",
    note = "an optimizer that needs whole parameters runs by `DistributedDataParallel::step_whole_parameters`, where \
            every rank has them: without `ShardedOptimizer`, and not on parameters that are cut over tensor-parallel \
            ranks",
    note = "if `{Self}` updates each element by itself, whatever the parameter's shape, implement \
            `burn_megatron::data_parallel::ElementWise` for it"
)]
pub trait ElementWise: Optimizer {
    /// Returns how the optimizer updates all parameters of a bucket at once, if it does: its update is AdamW's.
    ///
    /// `None` unless an optimizer says otherwise. Used on devices, for parameters of 16 bits.
    fn bucket_form(&self) -> Option<BucketForm<Self>> {
        None
    }

    /// Returns what the optimizer does with whole matrices, if it does: then it is element-wise but for this, which a
    /// [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) does in place of its own step. Such an optimizer is
    /// refused elsewhere, unless every rank has whole parameters.
    ///
    /// `None` unless an optimizer says otherwise.
    fn matrix_form(&self) -> Option<MatrixForm<Self>> {
        None
    }

    /// Returns how the optimizer updates a parameter by sums over its rows, its columns and all its elements, if it
    /// does: then a [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) does that in place of its own step. Such
    /// an optimizer is refused elsewhere, unless every rank has whole parameters.
    ///
    /// `None` unless an optimizer says otherwise.
    fn factored_form(&self) -> Option<FactoredForm<Self>> {
        None
    }
}

/// An optimizer's step and state as those of AdamW: see [`adamw_ranges`](cubecl_kernels::adamw::adamw_ranges).
pub struct BucketForm<O: Optimizer> {
    /// Returns the numbers of a parameter's update; 1 is the first.
    pub step: fn(&O, LearningRate, u64) -> AdamWStep,
    /// Returns the moments of a parameter's state.
    pub moments: fn(O::State<1>) -> [Tensor<1>; 2],
    /// Returns a parameter's state after some updates, of its moments.
    pub state: fn(u64, [Tensor<1>; 2]) -> O::State<1>,
}

impl<O: Optimizer> Clone for BucketForm<O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Optimizer> Copy for BucketForm<O> {}

impl ElementWise for AdaGrad {}
impl ElementWise for Adam {}
impl ElementWise for AdamW {}
impl ElementWise for Adan {}
impl ElementWise for Lion {}
impl ElementWise for RmsProp {}
impl ElementWise for Sgd {}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;

    use burn::optim::Muon;

    use super::*;

    struct Asked<O>(PhantomData<O>);

    /// What holds unless the type itself says otherwise.
    trait Otherwise {
        const IS_ELEMENT_WISE: bool = false;
    }

    impl<O> Otherwise for Asked<O> {}

    impl<O: ElementWise> Asked<O> {
        const IS_ELEMENT_WISE: bool = true;
    }

    #[test]
    fn what_needs_matrices_is_not_element_wise() {
        const { assert!(!Asked::<Muon>::IS_ELEMENT_WISE) };
        const { assert!(Asked::<AdamW>::IS_ELEMENT_WISE) };
        const { assert!(Asked::<Sgd>::IS_ELEMENT_WISE) };
    }
}
