//! Tensors with random placements, and what a placed tensor must be.

use burn_backend::{DType, Slice, TensorData, TensorMetadata};
use burn_flex::{Flex, FlexDevice};

use super::super::kind::{Bool, Float, Int, Kind};
use super::super::placement::{AxisPlacement, Placements, REPLICATED, Reduction};
use super::super::tensor::Deferred;
use super::super::{Mesh, MeshShape, Sharded, ShardedTensor};
use super::case::Value;
use super::draw::{Draw, Input};
use crate::sharded::movement::redistribute::{gather, redistribute};

/// The tensor of some elements, of the inner backend.
pub fn plain(data: &TensorData) -> Value<Flex> {
    use burn_backend::ops::{BoolTensorOps, FloatTensorOps, IntTensorOps};
    match data.dtype() {
        DType::F64 => Value::Float(Flex::float_from_data(data.clone(), &FlexDevice)),
        DType::I64 => Value::Int(Flex::int_from_data(data.clone(), &FlexDevice)),
        _ => Value::Bool(Flex::bool_from_data(data.clone(), &FlexDevice)),
    }
}

/// The elements of a tensor of the inner backend.
pub fn read(value: Value<Flex>) -> TensorData {
    match value {
        Value::Float(tensor) => <Float as Kind<Flex>>::read(tensor),
        Value::Int(tensor) => <Int as Kind<Flex>>::read(tensor),
        Value::Bool(tensor) => {
            let data = <Bool as Kind<Flex>>::read(tensor);
            let values = data.iter::<u8>().map(|value| value != 0);
            // burn-flex calls booleans that it selects bytes.
            TensorData::new(values.collect::<Vec<bool>>(), data.shape().clone())
        }
    }
}

/// A random placement of a tensor of this shape; sums that have not been made are of one kind.
pub fn placements(draw: &mut Draw, mesh: &MeshShape, shape: &[usize], reductions: &[Reduction]) -> Placements {
    let mut places = REPLICATED;
    let reduction = (!reductions.is_empty()).then(|| draw.pick(reductions));
    for axis in 0..mesh.num_axes() {
        places[axis] = match (draw.below(6), reduction) {
            (0, _) => AxisPlacement::Replicated,
            (1, Some(reduction)) => AxisPlacement::Partial(reduction),
            _ if shape.is_empty() => AxisPlacement::Replicated,
            _ => {
                let dimension = draw.below(shape.len());
                if mesh.can_cut(shape, &places, axis, dimension) {
                    AxisPlacement::Shard(dimension)
                } else {
                    AxisPlacement::Replicated
                }
            }
        };
    }
    places
}

/// The reductions that an operand can wait for.
pub fn reductions(input: &Input) -> &'static [Reduction] {
    match input.data.dtype() {
        _ if !input.has_terms => &[],
        DType::F64 | DType::I64 => &[Reduction::Sum, Reduction::Sum, Reduction::Max, Reduction::Min],
        _ => &[Reduction::Max, Reduction::Min],
    }
}

/// This rank's tensor of an operand under a placement.
pub fn placed(draw: &mut Draw, mesh: &Mesh, input: &Input, places: &Placements) -> Value<Sharded<Flex>> {
    let term = plain(&term(draw, mesh, &input.data, places));
    match term {
        Value::Float(term) => Value::Float(cut::<Float>(mesh, term, places)),
        Value::Int(term) => Value::Int(cut::<Int>(mesh, term, places)),
        Value::Bool(term) => Value::Bool(cut::<Bool>(mesh, term, places)),
    }
}

/// A tensor whose part is made when it is needed.
pub fn deferred(data: &TensorData) -> Value<Sharded<Flex>> {
    match plain(data) {
        Value::Float(whole) => Value::Float(later::<Float>(whole)),
        Value::Int(whole) => Value::Int(later::<Int>(whole)),
        Value::Bool(whole) => Value::Bool(later::<Bool>(whole)),
    }
}

fn cut<K: Kind<Flex>>(mesh: &Mesh, term: K::Tensor, places: &Placements) -> ShardedTensor<Flex, K> {
    let shape = term.shape();
    let slices: Vec<Slice> = (0..shape.num_dims())
        .map(|dimension| {
            mesh.shape()
                .range(shape[dimension], places, dimension, mesh.ranks())
                .into()
        })
        .collect();
    ShardedTensor::placed(K::slice(term, &slices), shape, Some(mesh.clone()), *places)
}

fn later<K: Kind<Flex>>(whole: K::Tensor) -> ShardedTensor<Flex, K> {
    let (shape, dtype) = (whole.shape(), whole.dtype());
    let whole = std::sync::Mutex::new(whole);
    let make = move |ranges: &[std::ops::Range<usize>]| {
        let slices: Vec<Slice> = ranges.iter().map(|range| range.clone().into()).collect();
        K::slice(whole.lock().expect("no panic").clone(), &slices)
    };
    ShardedTensor::deferred(shape, Deferred::new(&FlexDevice, dtype, make).kept())
}

/// This rank's term of a tensor, of its logical shape.
fn term(draw: &mut Draw, mesh: &Mesh, data: &TensorData, places: &Placements) -> TensorData {
    let (mut own, mut count) = (0, 1);
    let mut reduction = None;
    for (axis, place) in places.iter().enumerate() {
        if let AxisPlacement::Partial(of_axis) = *place {
            own = own * mesh.shape().size(axis) + mesh.ranks()[axis];
            count *= mesh.shape().size(axis);
            reduction = Some(of_axis);
        }
    }
    let Some(reduction) = reduction else {
        return data.clone();
    };
    let shape = data.shape().clone();
    match data.dtype() {
        DType::F64 => {
            let values = data.iter::<f64>();
            let terms =
                values.map(|value| own_term(draw, reduction, value, own, count, |draw| draw.below(129) as f64 / 64.0));
            TensorData::new(terms.collect::<Vec<f64>>(), shape)
        }
        DType::I64 => {
            let values = data.iter::<i64>();
            let terms = values.map(|value| own_term(draw, reduction, value, own, count, |draw| draw.below(7) as i64));
            TensorData::new(terms.collect::<Vec<i64>>(), shape)
        }
        _ => {
            let terms = data.iter::<bool>().map(|value| {
                let owner = draw.below(count);
                let others: Vec<bool> = (0..count).map(|_| draw.chance(2)).collect();
                match reduction {
                    _ if own == owner => value,
                    Reduction::Min => value || others[own],
                    _ => value && others[own],
                }
            });
            TensorData::new(terms.collect::<Vec<bool>>(), shape)
        }
    }
}

/// One of `count` terms of a value. Every rank draws all of them.
fn own_term<T>(
    draw: &mut Draw,
    reduction: Reduction,
    value: T,
    own: usize,
    count: usize,
    amount: impl Fn(&mut Draw) -> T,
) -> T
where
    T: Copy + std::ops::Add<Output = T> + std::ops::Sub<Output = T>,
{
    let owner = draw.below(count);
    let amounts: Vec<T> = (0..count).map(|_| amount(draw)).collect();
    match reduction {
        Reduction::Max if own != owner => value - amounts[own],
        Reduction::Min if own != owner => value + amounts[own],
        Reduction::Max | Reduction::Min => value,
        Reduction::Sum if own != owner => amounts[own],
        Reduction::Sum => (0..count)
            .filter(|&other| other != owner)
            .fold(value, |rest, other| rest - amounts[other]),
    }
}

/// Checks a placed tensor against the elements that it should have, to the bit or apart from rounding.
pub fn compare(value: Value<Sharded<Flex>>, expected: &TensorData, exactly: bool) -> Result<(), String> {
    match value {
        Value::Float(tensor) => compare_kind(tensor, expected, exactly),
        Value::Int(tensor) => compare_kind(tensor, expected, exactly),
        Value::Bool(tensor) => compare_kind(tensor, expected, exactly),
    }
}

fn compare_kind<K: Kind<Flex>>(
    tensor: ShardedTensor<Flex, K>,
    expected: &TensorData,
    exactly: bool,
) -> Result<(), String> {
    let (shape, places) = (tensor.shape(), tensor.places());
    let described = format!("{tensor:?}");
    if shape != *expected.shape() || tensor.dtype() != expected.dtype() {
        return Err(format!(
            "{described}: expected {:?} {:?}",
            expected.shape(),
            expected.dtype()
        ));
    }
    if let Some(mesh) = tensor.mesh().cloned() {
        for dimension in 0..shape.num_dims() {
            if mesh.shape().parts(&places, dimension) > shape[dimension].max(1) {
                return Err(format!("{described}: a rank has nothing"));
            }
        }
        if places
            .iter()
            .any(|place| place.cut().is_some_and(|cut| cut >= shape.num_dims()))
        {
            return Err(format!("{described}: cut along a dimension that it has not"));
        }
        let part = redistribute(tensor.clone(), &mesh, &places);
        let of_part = mesh.shape().local_shape(&shape.to_vec(), &places, mesh.ranks());
        if part.shape().to_vec() != of_part || part.dtype() != expected.dtype() {
            return Err(format!(
                "{described}: this rank's part is {:?} {:?}, expected {of_part:?}",
                part.shape().to_vec(),
                part.dtype()
            ));
        }
    }
    let got = K::read(gather(tensor));
    if got.shape() != expected.shape() || got.dtype() != expected.dtype() {
        return Err(format!("{described}: gathered {:?} {:?}", got.shape(), got.dtype()));
    }
    let is_equal = match expected.dtype() {
        DType::F64 => got.iter::<f64>().zip(expected.iter::<f64>()).all(|(a, b)| {
            let is_same = a == b || (a.is_nan() && b.is_nan());
            is_same || (!exactly && is_close(a, b))
        }),
        _ => got == *expected,
    };
    if is_equal {
        Ok(())
    } else {
        Err(format!("{described}: got {got}, expected {expected}"))
    }
}

/// Apart from rounding in 64 bits.
fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-10 * b.abs().max(1.0)
}
