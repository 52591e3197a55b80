//! AdamW on the CPU, in place where nothing else holds the buffers.

use std::mem::MaybeUninit;

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType};
use burn_flex::{Flex, FlexTensor};
use half::{bf16, f16};

use super::AdamWStep;
use crate::flex::blocks::{Rows, in_blocks, uninit};
use crate::flex::lanes::Destination;
use crate::flex::math::{Real, vectorised};
use crate::flex::number::Number;
use crate::flex::tensor::{in_order, tensor};

/// Elements that are updated at once: what is widened or narrowed of them stays near the processor.
const CHUNK: usize = 2048;

/// Returns the updated buffers, and the copy that is asked for.
pub fn step(
    buffers: [FlexTensor; 3],
    gradient: FlexTensor,
    step: &AdamWStep,
    copy: Option<DType>,
) -> ([FlexTensor; 3], Option<FlexTensor>) {
    let main = buffers[0].dtype();
    let (buffers, made) = match (main, gradient.dtype(), copy) {
        (DType::F32, DType::F16, Some(DType::F16)) => update::<f32, f16, f16>(buffers, gradient, step, true),
        (DType::F32, DType::F16, Some(DType::BF16)) => update::<f32, f16, bf16>(buffers, gradient, step, true),
        (DType::F32, DType::F16, _) => update::<f32, f16, f32>(buffers, gradient, step, false),
        (DType::F32, DType::BF16, Some(DType::F16)) => update::<f32, bf16, f16>(buffers, gradient, step, true),
        (DType::F32, DType::BF16, Some(DType::BF16)) => update::<f32, bf16, bf16>(buffers, gradient, step, true),
        (DType::F32, DType::BF16, _) => update::<f32, bf16, f32>(buffers, gradient, step, false),
        (DType::F32, _, Some(DType::F16)) => update::<f32, f32, f16>(buffers, cast(gradient, main), step, true),
        (DType::F32, _, Some(DType::BF16)) => update::<f32, f32, bf16>(buffers, cast(gradient, main), step, true),
        (DType::F32, ..) => update::<f32, f32, f32>(buffers, cast(gradient, main), step, false),
        _ => update::<f64, f64, f64>(buffers, cast(gradient, main), step, false),
    };
    // A copy in the main type is the parameters themselves; others are seldom asked for, and take a pass of their own.
    let copy = made.or_else(|| copy.map(|dtype| cast(buffers[0].clone(), dtype)));
    (buffers, copy)
}

fn cast(tensor: FlexTensor, dtype: DType) -> FlexTensor {
    if tensor.dtype() == dtype {
        tensor
    } else {
        Flex::float_cast(tensor, FloatDType::from(dtype))
    }
}

/// The step for main parameters of type `M`, gradients of type `G`, and a copy in type `C` if it is asked for.
fn update<M: Number<Real = M> + Real, G: Number<Real = M>, C: Number<Real = M>>(
    buffers: [FlexTensor; 3],
    gradient: FlexTensor,
    step: &AdamWStep,
    has_copy: bool,
) -> ([FlexTensor; 3], Option<FlexTensor>) {
    let gradient = in_order(gradient);
    let gradient = gradient.storage::<G>();
    let count = gradient.len();
    let mut main = buffers.map(in_order);
    let mut copy = has_copy.then(|| uninit::<C>(count));
    let factors = Factors::<M>::of(step);
    let [parameters, moments_1, moments_2] = &mut main;
    let parts = (
        Rows::new(parameters.storage_mut::<M>(), 1),
        Rows::new(moments_1.storage_mut::<M>(), 1),
        Rows::new(moments_2.storage_mut::<M>(), 1),
        copy.as_mut().map(|copy| Rows::new(&mut copy[..], 1)),
    );
    in_blocks([count, 1], parts, |range, (parameters, moments_1, moments_2, copy)| {
        let mut copy = copy.map(|copy| copy.values.chunks_mut(CHUNK));
        vectorised(
            #[inline(always)]
            || {
                let mut buffer = Vec::new();
                let moments = moments_1
                    .values
                    .chunks_mut(CHUNK)
                    .zip(moments_2.values.chunks_mut(CHUNK));
                let main = parameters.values.chunks_mut(CHUNK).zip(moments);
                for ((parameters, (moments_1, moments_2)), gradient) in main.zip(gradient[range].chunks(CHUNK)) {
                    let gradient = G::read(gradient, &mut buffer);
                    factors.update(parameters, [moments_1, moments_2], gradient);
                    if let Some(copy) = copy.as_mut().and_then(Iterator::next) {
                        write_copy::<C>(parameters, copy);
                    }
                }
            },
        );
    });
    let copy = copy.map(|copy| {
        // SAFETY: the chunks of the copy are those of the parameters, and each was written.
        tensor(unsafe { copy.assume_init() }.into_vec(), [count])
    });
    (main, copy)
}

#[inline(always)]
fn write_copy<C: Number>(parameters: &[C::Real], copy: &mut [MaybeUninit<C>]) {
    C::write(parameters, Destination::New { from: &[], to: copy });
}

/// A step's numbers, in the type that is computed in.
#[derive(Clone, Copy)]
struct Factors<R> {
    scale: R,
    keep: [R; 2],
    take: [R; 2],
    /// `1 − lr · decay`
    decay: R,
    /// `lr / (1 − β₁ᵗ)`
    rate: R,
    /// `1 / √(1 − β₂ᵗ)`
    root: R,
    epsilon: R,
}

impl<R: Real> Factors<R> {
    fn of(step: &AdamWStep) -> Self {
        let [correction_1, correction_2] = step.corrections();
        Self {
            scale: R::of(step.gradient_scale),
            keep: [step.beta_1, step.beta_2].map(R::of),
            take: [1.0 - step.beta_1, 1.0 - step.beta_2].map(R::of),
            decay: R::of(1.0 - step.learning_rate * step.weight_decay),
            rate: R::of(step.learning_rate / correction_1),
            root: R::of(1.0 / correction_2.sqrt()),
            epsilon: R::of(step.epsilon),
        }
    }

    #[inline(always)]
    fn update(self, parameters: &mut [R], moments: [&mut [R]; 2], gradient: &[R]) {
        let count = gradient.len();
        let parameters = &mut parameters[..count];
        let [moments_1, moments_2] = moments;
        let (moments_1, moments_2) = (&mut moments_1[..count], &mut moments_2[..count]);
        for index in 0..count {
            let gradient = gradient[index] * self.scale;
            let moment_1 = moments_1[index] * self.keep[0] + gradient * self.take[0];
            let moment_2 = moments_2[index] * self.keep[1] + gradient * gradient * self.take[1];
            let denominator = moment_2.sqrt() * self.root + self.epsilon;
            parameters[index] = parameters[index] * self.decay - moment_1 * self.rate / denominator;
            moments_1[index] = moment_1;
            moments_2[index] = moment_2;
        }
    }
}
