//! [`Kind`]: what placing a tensor needs of float, int and bool tensors.

use std::ops::Range;

use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor};
use burn_backend::{DType, Scalar, Shape, Slice, TensorData, TensorMetadata, get_device_settings, try_read_sync};

use super::placement::Reduction;
use crate::collectives::{
    CollectiveBackend, CollectiveElement, CollectiveError, Pending, ProcessGroup, ReduceOp, TensorCall,
};

/// A kind of tensors of a backend.
pub trait Kind<B: CollectiveBackend>: Copy + std::fmt::Debug + Send + Sync + 'static {
    /// The inner backend's tensor.
    type Tensor: TensorMetadata<Device = B::Device> + 'static;

    /// A part of the tensor.
    fn slice(tensor: Self::Tensor, slices: &[Slice]) -> Self::Tensor;
    /// Tensors one after the other along a dimension.
    fn cat(tensors: Vec<Self::Tensor>, dimension: usize) -> Self::Tensor;
    /// A tensor of one value.
    fn full(shape: Shape, value: Scalar, device: &B::Device, dtype: DType) -> Self::Tensor;
    /// The tensor's elements in host memory.
    fn read(tensor: Self::Tensor) -> TensorData;
    /// A collective along dimension 0, of a group of several ranks.
    fn collective(tensor: Self::Tensor, call: KindCall, group: &ProcessGroup) -> Result<Self::Tensor, CollectiveError>;
    /// Sends each rank of a group its one of these tensors, and returns what each sends this rank, of these shapes. Its
    /// own stays. Nothing is sent of tensors without elements.
    fn exchange(
        tensors: Vec<Self::Tensor>,
        incoming: &[Shape],
        group: &ProcessGroup,
    ) -> Result<Vec<Self::Tensor>, CollectiveError>;
}

/// The collectives that placing a tensor needs.
#[derive(Clone, Copy, Debug)]
pub enum KindCall {
    /// See [`TensorCall::AllReduce`].
    AllReduce(Reduction),
    /// See [`TensorCall::ReduceScatter`].
    ReduceScatter(Reduction),
    /// See [`TensorCall::AllGather`].
    AllGather,
}

/// A range of a dimension.
pub(super) fn along<B: CollectiveBackend, K: Kind<B>>(
    tensor: K::Tensor,
    dimension: usize,
    range: Range<usize>,
) -> K::Tensor {
    let shape = tensor.shape();
    if range == (0..shape[dimension]) {
        return tensor;
    }
    let mut slices: Vec<Slice> = (0..shape.num_dims()).map(|other| (0..shape[other]).into()).collect();
    slices[dimension] = range.into();
    K::slice(tensor, &slices)
}

/// Tensors of floats.
#[derive(Clone, Copy, Debug)]
pub struct Float;

/// Tensors of integers.
#[derive(Clone, Copy, Debug)]
pub struct Int;

/// Tensors of booleans.
#[derive(Clone, Copy, Debug)]
pub struct Bool;

/// Calls burn's operations by the names that they have for each kind.
macro_rules! burns_own {
    ($slice:ident, $cat:ident, $into_data:ident) => {
        fn slice(tensor: Self::Tensor, slices: &[Slice]) -> Self::Tensor {
            B::$slice(tensor, slices)
        }

        fn cat(tensors: Vec<Self::Tensor>, dimension: usize) -> Self::Tensor {
            B::$cat(tensors, dimension)
        }

        fn read(tensor: Self::Tensor) -> TensorData {
            try_read_sync(B::$into_data(tensor))
                .expect("a native backend reads without an executor")
                .expect("the tensor was computed")
        }
    };
}

impl<B: CollectiveBackend> Kind<B> for Float {
    type Tensor = FloatTensor<B>;

    burns_own!(float_slice, float_cat, float_into_data);

    fn full(shape: Shape, value: Scalar, device: &B::Device, dtype: DType) -> Self::Tensor {
        B::float_full(shape, value, device, dtype.into())
    }

    #[track_caller]
    fn collective(tensor: Self::Tensor, call: KindCall, group: &ProcessGroup) -> Result<Self::Tensor, CollectiveError> {
        let reduce = |tensor, reduction, call: fn(ReduceOp) -> TensorCall| match reduction {
            Reduction::Sum => B::run(tensor, call(ReduceOp::Sum), group),
            Reduction::Max => B::run(tensor, call(ReduceOp::Max), group),
            Reduction::Min => B::run(B::float_neg(tensor), call(ReduceOp::Max), group).map(B::float_neg),
        };
        match call {
            KindCall::AllReduce(reduction) => reduce(tensor, reduction, TensorCall::AllReduce),
            KindCall::ReduceScatter(reduction) => reduce(tensor, reduction, TensorCall::ReduceScatter),
            KindCall::AllGather => B::run(tensor, TensorCall::AllGather, group),
        }
    }

    #[track_caller]
    fn exchange(
        tensors: Vec<Self::Tensor>,
        incoming: &[Shape],
        group: &ProcessGroup,
    ) -> Result<Vec<Self::Tensor>, CollectiveError> {
        let Some((device, dtype)) = tensors.first().map(|first| (first.device(), first.dtype())) else {
            return Ok(Vec::new());
        };
        exchanged(
            tensors,
            incoming,
            group,
            |tensor, rank| {
                let has_elements = tensor.shape().num_elements() > 0;
                has_elements.then(|| B::send_start(tensor, rank, group))
            },
            |shape, rank| match shape.num_elements() {
                0 => Arriving::Here(B::float_zeros(shape.clone(), &device, dtype.into())),
                _ => Arriving::Pending(B::recv_start(shape.clone(), dtype, &device, rank, group)),
            },
            |pending| pending.wait(),
        )
    }
}

/// A tensor from another rank that is under way, or one that is here already.
enum Arriving<T, P> {
    Here(T),
    Pending(P),
}

/// Returns what each rank has for this one, of what each has for each. `send` starts to send, unless there is nothing,
/// and `receive` to receive: all are started before one is waited for.
fn exchanged<T, P>(
    items: Vec<T>,
    incoming: &[Shape],
    group: &ProcessGroup,
    send: impl Fn(T, usize) -> Option<Pending<()>>,
    receive: impl Fn(&Shape, usize) -> Arriving<T, P>,
    wait: impl Fn(P) -> Result<T, CollectiveError>,
) -> Result<Vec<T>, CollectiveError> {
    let (mut sending, mut arriving) = (Vec::new(), Vec::new());
    for (rank, (item, shape)) in items.into_iter().zip(incoming).enumerate() {
        if rank == group.rank() {
            arriving.push(Arriving::Here(item));
        } else {
            sending.extend(send(item, rank));
            arriving.push(receive(shape, rank));
        }
    }
    let arrived = arriving.into_iter().map(|arriving| match arriving {
        Arriving::Here(item) => Ok(item),
        Arriving::Pending(pending) => wait(pending),
    });
    let arrived = arrived.collect();
    sending.into_iter().try_for_each(Pending::wait)?;
    arrived
}

impl<B: CollectiveBackend> Kind<B> for Int {
    type Tensor = IntTensor<B>;

    burns_own!(int_slice, int_cat, int_into_data);

    fn full(shape: Shape, value: Scalar, device: &B::Device, dtype: DType) -> Self::Tensor {
        B::int_full(shape, value, device, dtype.into())
    }

    /// Through host memory, in 64 bits: NCCL is for floats.
    #[track_caller]
    fn collective(tensor: Self::Tensor, call: KindCall, group: &ProcessGroup) -> Result<Self::Tensor, CollectiveError> {
        let (device, dtype) = (tensor.device(), tensor.dtype());
        let mut shape = tensor.shape();
        // Those of u64 that i64 does not have wrap, and back; in an order as they have it where the order counts.
        let has_order = matches!(
            call,
            KindCall::AllReduce(Reduction::Max | Reduction::Min)
                | KindCall::ReduceScatter(Reduction::Max | Reduction::Min)
        );
        let flipped = if has_order { 1 << 63 } else { 0 };
        let mut elements = words::<B>(tensor, flipped);
        let reduce = |elements: &mut Vec<i64>, reduction| match reduction {
            Reduction::Sum => group.all_reduce(elements, ReduceOp::Sum),
            Reduction::Max => group.all_reduce(elements, ReduceOp::Max),
            Reduction::Min => {
                // Unlike a negation, this turns the order round for all of them.
                elements.iter_mut().for_each(|element| *element = !*element);
                group.all_reduce(elements, ReduceOp::Max)?;
                elements.iter_mut().for_each(|element| *element = !*element);
                Ok(())
            }
        };
        match call {
            KindCall::AllReduce(reduction) => reduce(&mut elements, reduction)?,
            KindCall::ReduceScatter(reduction) => {
                reduce(&mut elements, reduction)?;
                let part = elements.len() / group.size();
                elements = elements[group.rank() * part..][..part].to_vec();
                shape[0] /= group.size();
            }
            KindCall::AllGather => {
                elements = gathered(&elements, group)?;
                shape[0] *= group.size();
            }
        }
        Ok(integers::<B>(elements, flipped, shape, dtype, &device))
    }

    /// Likewise.
    #[track_caller]
    fn exchange(
        tensors: Vec<Self::Tensor>,
        incoming: &[Shape],
        group: &ProcessGroup,
    ) -> Result<Vec<Self::Tensor>, CollectiveError> {
        let Some((device, dtype)) = tensors.first().map(|first| (first.device(), first.dtype())) else {
            return Ok(Vec::new());
        };
        let elements = tensors.into_iter().map(|tensor| words::<B>(tensor, 0)).collect();
        let arrived = exchanged(
            elements,
            incoming,
            group,
            |elements: Vec<i64>, rank| {
                let has_elements = !elements.is_empty();
                has_elements.then(|| group.send_owned_start(elements, rank))
            },
            |shape, rank| match shape.num_elements() {
                0 => Arriving::Here(Vec::new()),
                length => Arriving::Pending(group.recv_start::<i64>(length, rank)),
            },
            |pending| pending.wait(),
        )?;
        let tensors = arrived.into_iter().zip(incoming);
        Ok(tensors
            .map(|(elements, shape)| integers::<B>(elements, 0, shape.clone(), dtype, &device))
            .collect())
    }
}

/// The elements in 64 bits, those of u64 with these bits turned.
fn words<B: CollectiveBackend>(tensor: IntTensor<B>, flipped: u64) -> Vec<i64> {
    let dtype = tensor.dtype();
    let data = <Int as Kind<B>>::read(tensor);
    match dtype {
        DType::U64 => data.iter::<u64>().map(|element| (element ^ flipped) as i64).collect(),
        _ => data.iter::<i64>().collect(),
    }
}

/// The tensor of such elements.
fn integers<B: CollectiveBackend>(
    elements: Vec<i64>,
    flipped: u64,
    shape: Shape,
    dtype: DType,
    device: &B::Device,
) -> IntTensor<B> {
    let data = match dtype {
        DType::U64 => {
            let elements = elements.into_iter().map(|element| element as u64 ^ flipped);
            TensorData::new(elements.collect::<Vec<u64>>(), shape)
        }
        _ => TensorData::new(elements, shape).convert_dtype(dtype),
    };
    B::int_from_data(data, device)
}

impl<B: CollectiveBackend> Kind<B> for Bool {
    type Tensor = BoolTensor<B>;

    burns_own!(bool_slice, bool_cat, bool_into_data);

    fn full(shape: Shape, value: Scalar, device: &B::Device, dtype: DType) -> Self::Tensor {
        if value.elem::<bool>() {
            B::bool_ones(shape, device, dtype.into())
        } else {
            B::bool_zeros(shape, device, dtype.into())
        }
    }

    /// As that of integers.
    #[track_caller]
    fn collective(tensor: Self::Tensor, call: KindCall, group: &ProcessGroup) -> Result<Self::Tensor, CollectiveError> {
        let settings = get_device_settings::<B>(&tensor.device());
        let dtype = tensor.dtype();
        let integers = B::bool_into_int(tensor, settings.int_dtype);
        let integers = <Int as Kind<B>>::collective(integers, call, group)?;
        Ok(B::int_not_equal_elem(integers, 0i64.into(), dtype.into()))
    }

    #[track_caller]
    fn exchange(
        tensors: Vec<Self::Tensor>,
        incoming: &[Shape],
        group: &ProcessGroup,
    ) -> Result<Vec<Self::Tensor>, CollectiveError> {
        let Some((device, dtype)) = tensors.first().map(|first| (first.device(), first.dtype())) else {
            return Ok(Vec::new());
        };
        let settings = get_device_settings::<B>(&device);
        let integers = tensors
            .into_iter()
            .map(|tensor| B::bool_into_int(tensor, settings.int_dtype));
        let integers = <Int as Kind<B>>::exchange(integers.collect(), incoming, group)?;
        let truths = integers.into_iter();
        Ok(truths
            .map(|integers| B::int_not_equal_elem(integers, 0i64.into(), dtype.into()))
            .collect())
    }
}

/// The ranks' elements, in order.
#[track_caller]
fn gathered<T: CollectiveElement>(elements: &[T], group: &ProcessGroup) -> Result<Vec<T>, CollectiveError> {
    let mut all = vec![T::zeroed(); elements.len() * group.size()];
    group.all_gather(elements, &mut all)?;
    Ok(all)
}
