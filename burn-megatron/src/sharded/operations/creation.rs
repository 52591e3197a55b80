//! Tensors that an operation makes of nothing: no rank has elements before it is known which of them it needs.

use std::ops::Range;

use burn_backend::{DType, IntDType, Shape};

use super::super::ShardedTensor;
use super::super::kind::{Int, Kind};
use super::super::tensor::Deferred;
use crate::collectives::CollectiveBackend;

/// burn's operations that make tensors of one kind, and those that read them.
macro_rules! creation {
    ($tensor:ty, $dtype:ty; $from_data:ident, $into_data:ident; $( $uniform:ident ),*) => {
        fn $from_data(data: TensorData, device: &B::Device) -> $tensor {
            ShardedTensor::whole(B::$from_data(data, device))
        }

        /// Collective if the tensor is cut or a sum that has not been made.
        fn $into_data(tensor: $tensor) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
            // Here, not in the future: collectives belong to the thread that trains.
            let read = $crate::sharded::record::read(&tensor);
            let reading = read.is_none().then(|| {
                set_operation(stringify!($into_data));
                B::$into_data(gather(tensor))
            });
            async move {
                match (read, reading) {
                    (Some(data), _) => Ok(data),
                    (None, Some(reading)) => reading.await,
                    (None, None) => unreachable!("what has not been read is being read"),
                }
            }
        }

        $(
            fn $uniform(shape: Shape, device: &B::Device, dtype: $dtype) -> $tensor {
                creation::uniform(shape, device, dtype.into(), move |shape, device| B::$uniform(shape, device, dtype))
            }
        )*
    };
}
pub(super) use creation;

/// A tensor whose every part is made by `make` from the part's shape.
pub(super) fn uniform<B: CollectiveBackend, K: Kind<B>>(
    shape: Shape,
    device: &B::Device,
    dtype: DType,
    make: impl Fn(Shape, &B::Device) -> K::Tensor + Send + Sync + 'static,
) -> ShardedTensor<B, K> {
    let own_device = device.clone();
    let make = move |ranges: &[Range<usize>]| {
        let shape: Vec<usize> = ranges.iter().map(Range::len).collect();
        make(Shape::from(shape), &own_device)
    };
    ShardedTensor::deferred(shape, Deferred::new(device, dtype, make))
}

/// The numbers of a range, with a step between them.
pub(super) fn arange<B: CollectiveBackend>(
    range: Range<i64>,
    step: usize,
    device: &B::Device,
    dtype: IntDType,
) -> ShardedTensor<B, Int> {
    let count = (range.end - range.start).max(0) as usize;
    let own_device = device.clone();
    let make = move |ranges: &[Range<usize>]| {
        let at = |index: usize| (range.start + (index * step) as i64).min(range.end);
        B::int_arange_step(at(ranges[0].start)..at(ranges[0].end), step, &own_device, dtype)
    };
    ShardedTensor::deferred(
        Shape::new([count.div_ceil(step)]),
        Deferred::new(device, dtype.into(), make),
    )
}
