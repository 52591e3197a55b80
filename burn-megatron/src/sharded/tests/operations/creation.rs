//! Tensors that are made of nothing, and what reads and moves whole tensors.

use burn_backend::Backend;
use burn_backend::tensor::FloatTensor;
use burn_backend::{BoolDType, DType, FloatDType, IntDType, Shape, TensorData, TensorMetadata};

use super::super::case::{Case, Value, case};
use super::super::draw::{Draw, Inputs, float, int, truth};

pub fn cases() -> Vec<Case> {
    [floats(), ints(), bools(), transfers()].concat()
}

/// Each meets a placed tensor, whose part of it is then made.
fn floats() -> Vec<Case> {
    vec![
        case!("float_zeros", |d| d.one(float), |_, values| {
            let (tensor, shape, device) = described::<B>(values.float());
            [Value::Float(B::float_add(
                tensor,
                B::float_zeros(shape, &device, FloatDType::F64),
            ))]
        }),
        case!("float_ones", |d| d.one(float), |_, values| {
            let (tensor, shape, device) = described::<B>(values.float());
            [Value::Float(B::float_mul(
                B::float_ones(shape, &device, FloatDType::F64),
                tensor,
            ))]
        }),
        case!("float_full", |d| d.one(float), |_, values| {
            let (tensor, shape, device) = described::<B>(values.float());
            let full = B::float_full(shape, 2.5f64.into(), &device, FloatDType::F64);
            [Value::Float(B::float_add(full, tensor))]
        }),
        case!("float_full alone", |d| d.one(float), |_, values| {
            let (_, shape, device) = described::<B>(values.float());
            [Value::Float(B::float_full(
                shape,
                2.5f64.into(),
                &device,
                FloatDType::F64,
            ))]
        }),
        case!("float_empty", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            let (shape, device) = (tensor.shape(), tensor.device());
            let all = B::bool_or(tensor.clone(), B::bool_not(tensor));
            let empty = B::float_empty(shape, &device, FloatDType::F64);
            [Value::Float(B::float_mask_fill(empty, all, 1.5f64.into()))]
        }),
    ]
}

fn ints() -> Vec<Case> {
    vec![
        case!("int_zeros", |d| d.one(int), |_, values| {
            let (tensor, shape, device) = described_int::<B>(values.int());
            [Value::Int(B::int_add(
                tensor,
                B::int_zeros(shape, &device, IntDType::I64),
            ))]
        }),
        case!("int_ones", |d| d.one(int), |_, values| {
            let (tensor, shape, device) = described_int::<B>(values.int());
            [Value::Int(B::int_sub(
                B::int_ones(shape, &device, IntDType::I64),
                tensor,
            ))]
        }),
        case!("int_full", |d| d.one(int), |_, values| {
            let (tensor, shape, device) = described_int::<B>(values.int());
            let full = B::int_full(shape, 4i64.into(), &device, IntDType::I64);
            [Value::Int(B::int_mul(full, tensor))]
        }),
        case!("int_empty", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            let (shape, device) = (tensor.shape(), tensor.device());
            let all = B::bool_or(tensor.clone(), B::bool_not(tensor));
            [Value::Int(B::int_mask_fill(
                B::int_empty(shape, &device, IntDType::I64),
                all,
                3i64.into(),
            ))]
        }),
        case!("int_arange_step", numbered, |a, values| {
            let tensor = values.int();
            let device = tensor.device();
            let (start, step) = (a[0] as i64 - 5, a[1]);
            let numbers = B::int_arange_step(start..start + a[2] as i64, step, &device, IntDType::I64);
            [Value::Int(B::int_add(tensor, numbers.clone())), Value::Int(numbers)]
        }),
        case!("int_arange", numbered_by_one, |a, values| {
            let tensor = values.int();
            let device = tensor.device();
            let numbers = B::int_arange(2..2 + a[0] as i64, &device, IntDType::I64);
            [Value::Int(B::int_add(numbers, tensor))]
        }),
    ]
}

fn bools() -> Vec<Case> {
    vec![
        case!("bool_zeros", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            let zeros = B::bool_zeros(tensor.shape(), &tensor.device(), BoolDType::Native);
            [Value::Bool(B::bool_or(tensor, zeros))]
        }),
        case!("bool_ones", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            let ones = B::bool_ones(tensor.shape(), &tensor.device(), BoolDType::Native);
            [Value::Bool(B::bool_xor(ones, tensor))]
        }),
        case!("bool_empty", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            let empty = B::bool_empty(tensor.shape(), &tensor.device(), BoolDType::Native);
            let all = B::bool_or(tensor.clone(), B::bool_not(tensor));
            [Value::Bool(B::bool_mask_fill(empty, all, true.into()))]
        }),
    ]
}

fn transfers() -> Vec<Case> {
    vec![
        case!("float_into_data", |d| d.one(float), |_, values| {
            let (tensor, _, device) = described::<B>(values.float());
            let data = finished(burn_backend::try_read_sync(B::float_into_data(tensor)));
            [Value::Float(B::float_from_data(data, &device))]
        }),
        case!("float_from_data", |d| d.one(float), |_, values| {
            let (tensor, shape, device) = described::<B>(values.float());
            let ones = TensorData::ones::<f64, _>(shape);
            [Value::Float(B::float_mul(tensor, B::float_from_data(ones, &device)))]
        }),
        case!("float_device", |d| d.one(float), |_, values| {
            let tensor = values.float();
            assert_eq!(tensor.device(), Default::default());
            [Value::Float(tensor)]
        }),
        case!("float_to_device", |d| d.one(float), |_, values| {
            let (tensor, _, device) = described::<B>(values.float());
            [Value::Float(B::float_to_device(tensor, &device))]
        }),
        case!("int_into_data", |d| d.one(int), |_, values| {
            let (tensor, _, device) = described_int::<B>(values.int());
            let data = finished(burn_backend::try_read_sync(B::int_into_data(tensor)));
            [Value::Int(B::int_from_data(data, &device))]
        }),
        case!("int_from_data", |d| d.one(int), |_, values| {
            let (tensor, shape, device) = described_int::<B>(values.int());
            let ones = TensorData::ones::<i64, _>(shape);
            [Value::Int(B::int_mul(tensor, B::int_from_data(ones, &device)))]
        }),
        case!("int_device", |d| d.one(int), |_, values| {
            let tensor = values.int();
            assert_eq!(tensor.device(), Default::default());
            [Value::Int(tensor)]
        }),
        case!("int_to_device", |d| d.one(int), |_, values| {
            let (tensor, _, device) = described_int::<B>(values.int());
            [Value::Int(B::int_to_device(tensor, &device))]
        }),
        case!("bool_into_data", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            let device = tensor.device();
            let data = finished(burn_backend::try_read_sync(B::bool_into_data(tensor)));
            [Value::Bool(B::bool_from_data(data, &device))]
        }),
        case!("bool_from_data", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            let device = tensor.device();
            let count = tensor.shape().num_elements();
            let data = TensorData::new(vec![true; count], tensor.shape());
            assert_eq!(data.dtype(), DType::Bool(burn_backend::BoolStore::Native));
            [Value::Bool(B::bool_and(tensor, B::bool_from_data(data, &device)))]
        }),
        case!("bool_device", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            assert_eq!(tensor.device(), Default::default());
            [Value::Bool(tensor)]
        }),
        case!("bool_to_device", |d| d.one(truth), |_, values| {
            let tensor = values.bool();
            let device = tensor.device();
            [Value::Bool(B::bool_to_device(tensor, &device))]
        }),
    ]
}

fn described<B: Backend>(tensor: FloatTensor<B>) -> (FloatTensor<B>, Shape, B::Device) {
    let (shape, device) = (tensor.shape(), tensor.device());
    (tensor, shape, device)
}

fn described_int<B: Backend>(
    tensor: burn_backend::tensor::IntTensor<B>,
) -> (burn_backend::tensor::IntTensor<B>, Shape, B::Device) {
    let (shape, device) = (tensor.shape(), tensor.device());
    (tensor, shape, device)
}

/// A tensor of one dimension, as long as a range with a step; start, step and length of the range.
fn numbered(draw: &mut Draw) -> Inputs {
    let (start, step, length) = (draw.below(10), 1 + draw.below(3), 1 + draw.below(12));
    Inputs::new([int(draw, &[length.div_ceil(step)])]).with([start, step, length])
}

fn numbered_by_one(draw: &mut Draw) -> Inputs {
    let length = draw.length();
    Inputs::new([int(draw, &[length])]).with([length])
}

fn finished<E: std::fmt::Debug>(data: Option<Result<TensorData, E>>) -> TensorData {
    data.expect("the backend reads at once").expect("it was computed")
}
