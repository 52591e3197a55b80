//! burn on CUDA as it is, fusion included, against burn's backend for the CPU.

use anyhow::{Result, ensure};
use burn::tensor::{Device, Distribution, Tensor, TensorData, activation};
use cubecl_kernels::norm::layer_norm;
use cubecl_kernels::softmax::{SoftmaxMask, scaled_masked_softmax};

use crate::scene::{Role, Scene};

/// Far more than an operation takes, so that operations of streams come in any order.
const JITTER: u64 = 300;

pub fn scenes() -> Vec<Scene> {
    vec![
        Scene::new("burn::tensors_come_back_as_they_went", round_trip).jitter(JITTER),
        Scene::new("burn::elementwise_operations_match_the_cpu", elementwise).jitter(JITTER),
        Scene::new("burn::reductions_match_the_cpu", reductions).jitter(JITTER),
        Scene::new("burn::softmax_matches_the_cpu", softmax).jitter(JITTER),
        Scene::new("burn::products_match_the_cpu", products).jitter(JITTER),
        Scene::new("burn::gradients_of_a_layer_match_the_cpu", layer).jitter(JITTER),
        Scene::new("burn::threads_share_tensors", threads).jitter(2000),
        Scene::new("burn::tensors_move_between_devices", two_devices)
            .devices(2)
            .jitter(JITTER),
        Scene::new("burn::our_layer_norm_matches_the_cpu", our_norm).jitter(JITTER),
        Scene::new("burn::our_softmax_matches_the_cpu", our_softmax).jitter(JITTER),
    ]
}

/// What makes numbers of inputs, which a device with autodiff has.
type Function = fn(Vec<Tensor<2>>) -> Vec<Tensor<2>>;

/// Numbers around zero, the same for every device.
fn inputs(shapes: &[[usize; 2]]) -> Vec<TensorData> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1u32 << 23) - 1.0
    };
    let data = shapes.iter().map(|&[rows, columns]| {
        let values: Vec<f32> = (0..rows * columns).map(|_| next() as f32).collect();
        TensorData::new(values, [rows, columns])
    });
    data.collect()
}

fn on(device: Device, function: Function, data: &[TensorData]) -> Vec<TensorData> {
    let device = device.autodiff();
    let inputs = data.iter().map(|data| Tensor::from_data(data.clone(), &device));
    let outputs = function(inputs.collect());
    outputs.into_iter().map(Tensor::into_data).collect()
}

/// Sums of up to a few hundred products in f32, in another order, and fast functions of the GPU.
const FLOAT: f64 = 1e-4;
/// Products in TF32, whose mantissa has 10 bits.
const TF32: f64 = 4e-3;

/// Compares with the CPU, several times: what is left over from the last one is used again.
fn same(function: Function, shapes: &[[usize; 2]], tolerance: f64) -> Result<()> {
    let data = inputs(shapes);
    let expected = on(Device::flex(), function, &data);
    for turn in 0..3 {
        let found = on(Device::cuda(0), function, &data);
        ensure!(found.len() == expected.len());
        for (index, (found, expected)) in std::iter::zip(&found, &expected).enumerate() {
            ensure!(found.shape() == expected.shape(), "output {index}: {:?}", found.shape());
            let pairs = std::iter::zip(found.iter::<f64>(), expected.iter::<f64>());
            for (place, (found, expected)) in pairs.enumerate() {
                let is_close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
                ensure!(
                    is_close,
                    "turn {turn}, output {index}, element {place}: {found}, expected {expected}"
                );
            }
        }
    }
    Ok(())
}

fn round_trip(_: &Role) -> Result<()> {
    same(|inputs| inputs, &[[1, 1], [3, 5], [64, 33], [1, 1000]], FLOAT)
}

fn elementwise(_: &Role) -> Result<()> {
    fn chain(inputs: Vec<Tensor<2>>) -> Vec<Tensor<2>> {
        let [a, b] = [inputs[0].clone(), inputs[1].clone()];
        let sum = a.clone().exp() + b.clone() * 2.0;
        let chosen = sum.clone().mask_fill(a.greater(b), -1.0);
        vec![sum.clone().tanh(), chosen, (sum.transpose() - 0.5).abs().sqrt()]
    }
    same(chain, &[[7, 33], [7, 33]], FLOAT)?;
    same(chain, &[[7, 33], [1, 33]], FLOAT)
}

fn reductions(_: &Role) -> Result<()> {
    fn sums(inputs: Vec<Tensor<2>>) -> Vec<Tensor<2>> {
        let a = inputs[0].clone();
        let total = a.clone().sum().reshape([1, 1]);
        vec![total, a.clone().sum_dim(0), a.clone().mean_dim(1), a.max_dim(1)]
    }
    same(sums, &[[5, 77]], FLOAT)?;
    same(sums, &[[64, 64]], FLOAT)
}

fn softmax(_: &Role) -> Result<()> {
    fn rows(inputs: Vec<Tensor<2>>) -> Vec<Tensor<2>> {
        let a = inputs[0].clone() * 5.0;
        vec![activation::softmax(a.clone(), 1), activation::log_softmax(a, 0)]
    }
    same(rows, &[[6, 50]], FLOAT)
}

fn products(_: &Role) -> Result<()> {
    fn product(inputs: Vec<Tensor<2>>) -> Vec<Tensor<2>> {
        let [a, b] = [inputs[0].clone(), inputs[1].clone()];
        let product = a.clone().matmul(b.clone());
        vec![
            product.clone(),
            b.transpose().matmul(a.transpose()),
            activation::relu(product) + 1.0,
        ]
    }
    same(product, &[[32, 48], [48, 16]], TF32)?;
    same(product, &[[1, 7], [7, 5]], TF32)?;
    // Where a warp has several tiles, and stores them through the same memory.
    same(product, &[[22, 36], [36, 108]], TF32)?;
    same(product, &[[64, 64], [64, 256]], TF32)
}

fn layer(_: &Role) -> Result<()> {
    fn layer(inputs: Vec<Tensor<2>>) -> Vec<Tensor<2>> {
        let [x, w, v] = [0, 1, 2].map(|index| inputs[index].clone().require_grad());
        let hidden = activation::gelu(x.clone().matmul(w.clone()));
        let loss = activation::log_softmax(hidden.matmul(v.clone()), 1)
            .powi_scalar(2)
            .mean();
        let gradients = loss.backward();
        let of = |tensor: &Tensor<2>| tensor.grad(&gradients).expect("was asked for");
        vec![loss.inner().reshape([1, 1]), of(&x), of(&w), of(&v)]
    }
    same(layer, &[[8, 12], [12, 16], [16, 10]], TF32)
}

fn our_norm(_: &Role) -> Result<()> {
    fn norm(inputs: Vec<Tensor<2>>) -> Vec<Tensor<2>> {
        let x = inputs[0].clone().require_grad();
        let [weight, bias] = [1, 2].map(|index| {
            let row = inputs[index].clone().inner().reshape([-1]);
            Tensor::<1>::from_inner(row).require_grad()
        });
        let output = layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5).expect("fits");
        let gradients = (output.clone() * output.clone().exp()).sum().backward();
        let of = |tensor: &Tensor<1>| tensor.grad(&gradients).expect("was asked for").unsqueeze();
        vec![
            output.inner(),
            x.grad(&gradients).expect("was asked for"),
            of(&weight),
            of(&bias),
        ]
    }
    same(norm, &[[9, 40], [1, 40], [1, 40]], FLOAT)
}

fn our_softmax(_: &Role) -> Result<()> {
    fn masked(inputs: Vec<Tensor<2>>) -> Vec<Tensor<2>> {
        let x = inputs[0].clone().require_grad();
        let scores = x.clone().reshape([1, 1, 8, 8]);
        let output = scaled_masked_softmax(scores, SoftmaxMask::Causal, 0.5).expect("fits");
        let gradients = output.clone().powi_scalar(3).sum().backward();
        vec![
            output.inner().reshape([8, 8]),
            x.grad(&gradients).expect("was asked for"),
        ]
    }
    same(masked, &[[8, 8]], FLOAT)
}

/// What one thread makes, others read: burn's streams wait for each other by events.
///
/// The first thread keeps its tensor to the end. Where it gives it away, cubecl 0.11 lets another thread write in its
/// place before what the first one reads is copied: it counts who may still read a tensor, but not what waits in their
/// streams.
fn threads(_: &Role) -> Result<()> {
    let device = Device::cuda(0);
    for turn in 0..8 {
        let start = Tensor::<1>::from_data([turn as f32; 200], &device);
        let made = std::thread::spawn(move || start * 2.0 + 1.0);
        let made = made.join().expect("the thread does not panic");
        let others: Vec<_> = (0..2)
            .map(|addend| {
                let made = made.clone();
                std::thread::spawn(move || (made + addend as f32).into_data())
            })
            .collect();
        let own = made.clone().into_data();
        own.assert_eq(&TensorData::from([turn as f32 * 2.0 + 1.0; 200]), true);
        for (addend, other) in others.into_iter().enumerate() {
            let other = other.join().expect("the thread does not panic");
            other.assert_eq(&TensorData::from([turn as f32 * 2.0 + 1.0 + addend as f32; 200]), true);
        }
        drop(made);
    }
    Ok(())
}

fn two_devices(_: &Role) -> Result<()> {
    let [first, second] = [0, 1].map(|number: usize| Device::cuda(number));
    let tensor = Tensor::<2>::random([20, 30], Distribution::Default, &first);
    let expected = (tensor.clone() * 2.0 + 1.0).into_data();
    let moved = (tensor * 2.0).to_device(&second) + 1.0;
    moved.into_data().assert_eq(&expected, true);
    Ok(())
}
