//! Tensors without rows or elements: burn's own operations on some devices do not take them, the ones here do.

use anyhow::ensure;
use burn::tensor::{DType, Int, Tensor, TensorData, backend::Backend};
use burn_flex::Flex;
use burn_wgpu::WgpuDevice;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep};
use cubecl_kernels::cross_entropy::Statistics;
use cubecl_kernels::norm::{AddRule, Addends};
use libtest_mimic::Trial;

use crate::backends::{Vulkan, has_vulkan};

pub fn trials() -> Vec<Trial> {
    let vulkan = Trial::test("vulkan_f32::element_operations_take_nothing", || {
        Ok(check::<Vulkan>(&WgpuDevice::DefaultDevice)?)
    });
    vec![
        Trial::test("flex_f32::element_operations_take_nothing", || {
            Ok(check::<Flex>(&Default::default())?)
        }),
        vulkan.with_ignored_flag(!has_vulkan(DType::F32)),
    ]
}

fn check<B: KernelBackend>(device: &B::Device) -> anyhow::Result<()> {
    let matrix = |columns: usize| -> Tensor<B, 2> {
        Tensor::from_data(TensorData::new(Vec::<f32>::new(), [0, columns]), device)
    };
    let vector = |values: Vec<f32>| -> Tensor<B, 1> {
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), device)
    };
    let bias = vector(vec![1.0; 6]);
    expect("bias_gelu", B::bias_gelu(matrix(6), bias.clone()), [0, 6], &[])?;
    let gradients = B::bias_gelu_backward(matrix(6), bias.clone(), matrix(6));
    expect("bias_gelu's input gradient", gradients.input, [0, 6], &[])?;
    expect("bias_gelu's bias gradient", gradients.bias, [6], &[0.0; 6])?;
    expect("swiglu", B::swiglu(matrix(6)), [0, 3], &[])?;
    expect(
        "swiglu's gradient",
        B::swiglu_backward(matrix(6), matrix(3)),
        [0, 6],
        &[],
    )?;
    let addends = Addends {
        input: matrix(6),
        bias: Some(bias),
        residual: matrix(6),
        dropout: None,
    };
    expect("bias_dropout_add", B::bias_dropout_add(addends), [0, 6], &[])?;
    let rule = AddRule {
        has_bias: true,
        dropout: None,
    };
    let gradients = B::bias_dropout_add_backward(matrix(6), &rule);
    expect("bias_dropout_add's input gradient", gradients.input, [0, 6], &[])?;
    let of_bias = gradients
        .bias
        .ok_or_else(|| anyhow::anyhow!("no gradient of the bias"))?;
    expect("bias_dropout_add's bias gradient", of_bias, [6], &[0.0; 6])?;

    let integers =
        |count: usize| -> Tensor<B, 1, Int> { Tensor::from_data(TensorData::new(vec![0i64; count], [count]), device) };
    let statistics = B::cross_entropy_statistics(matrix(6), integers(0), 6);
    expect("no rows' sums", statistics.sum, [0], &[])?;
    let no_columns: Tensor<B, 2> = Tensor::from_data(TensorData::new(Vec::<f32>::new(), [2, 0]), device);
    let statistics = B::cross_entropy_statistics(no_columns.clone(), integers(2), 0);
    expect("maxima of nothing", statistics.maximum, [2], &[f32::NEG_INFINITY; 2])?;
    expect("sums of nothing", statistics.sum, [2], &[0.0; 2])?;
    expect("targets in nothing", statistics.target, [2], &[0.0; 2])?;
    let ones = || vector(vec![1.0; 2]);
    let whole = Statistics {
        maximum: ones(),
        sum: ones(),
        target: ones(),
    };
    let gradient = B::cross_entropy_backward(no_columns, integers(2), 0, whole, ones());
    expect("the gradient of nothing", gradient, [2, 0], &[])?;

    let nothing = || vector(Vec::new());
    let buffers = AdamWBuffers {
        parameter: nothing(),
        moment_1: nothing(),
        moment_2: nothing(),
    };
    let step = AdamWStep {
        learning_rate: 0.1,
        beta_1: 0.9,
        beta_2: 0.99,
        epsilon: 1e-8,
        weight_decay: 0.1,
        gradient_scale: 1.0,
        time: 1,
    };
    let (buffers, copy) = B::adamw(buffers, nothing(), &step, Some(DType::F32));
    expect("no parameters", buffers.parameter, [0], &[])?;
    ensure!(copy.is_some_and(|copy| copy.dims() == [0]), "no copy of no parameters");
    expect(
        "a sum of nothing",
        B::sum_of_squares(vec![nothing(), nothing()]),
        [1],
        &[0.0],
    )?;
    expect(
        "a sum of some",
        B::sum_of_squares(vec![nothing(), vector(vec![3.0, 4.0])]),
        [1],
        &[25.0],
    )
}

fn expect<B: Backend, const D: usize>(
    what: &str,
    actual: Tensor<B, D>,
    dims: [usize; D],
    values: &[f32],
) -> anyhow::Result<()> {
    ensure!(
        actual.dims() == dims,
        "{what}: the shape is {:?}, expected {dims:?}",
        actual.dims()
    );
    let actual: Vec<f32> = actual.into_data().iter::<f32>().collect();
    ensure!(actual == values, "{what}: {actual:?}, expected {values:?}");
    Ok(())
}
