//! burn-cuda as it is, fusion included, against burn's backend for the CPU.

use anyhow::{Result, anyhow, ensure};
use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Distribution, Tensor, TensorData, activation};
use burn_cuda::{Cuda, CudaDevice};
use burn_flex::Flex;
use cubecl::Runtime;
use cubecl::cuda::CudaRuntime;
use cubecl_kernels::accumulate::GradientPlace;
use cubecl_kernels::linear::{linear, linear_transposed};
use cubecl_kernels::norm::layer_norm;
use cubecl_kernels::softmax::{SoftmaxMask, scaled_masked_softmax};
use cubecl_kernels::{KernelBackend, cublaslt};
use half::bf16;

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
        Scene::new("burn::our_products_on_cublaslt_match_the_cpu", our_products).jitter(JITTER),
        Scene::new("burn::our_products_on_cublaslt_are_added_to_sums", added_products).jitter(JITTER),
        Scene::new("burn::our_products_on_cublaslt_are_added_in_place", added_in_place),
        Scene::new("burn::our_products_on_cublaslt_are_rounded_once", rounded_once).jitter(JITTER),
        Scene::new("burn::a_product_that_fails_is_not_a_number", failing_product),
        Scene::new("burn::cublaslt_refuses_several_streams", several_streams),
    ]
}

/// What makes numbers of inputs, on any backend.
trait Function {
    fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>>;
}

/// Numbers around zero, the same for every backend.
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

fn on<B: KernelBackend>(function: &impl Function, data: &[TensorData]) -> Vec<TensorData> {
    let device = Default::default();
    let inputs = data.iter().map(|data| Tensor::from_data(data.clone(), &device));
    let outputs = function.apply::<B>(inputs.collect());
    outputs.into_iter().map(Tensor::into_data).collect()
}

/// Sums of up to a few hundred products in f32, in another order, and fast functions of the GPU.
const FLOAT: f64 = 1e-4;
/// Products in TF32, whose mantissa has 10 bits.
const TF32: f64 = 4e-3;

/// Compares with the CPU, several times: what is left over from the last one is used again.
fn same(function: impl Function, shapes: &[[usize; 2]], tolerance: f64) -> Result<()> {
    let data = inputs(shapes);
    let expected = on::<Flex>(&function, &data);
    for turn in 0..3 {
        let found = on::<Cuda>(&function, &data);
        ensure!(found.len() == expected.len());
        for (index, (found, expected)) in std::iter::zip(&found, &expected).enumerate() {
            ensure!(found.shape == expected.shape, "output {index}: {:?}", found.shape);
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
    struct Nothing;
    impl Function for Nothing {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            inputs
        }
    }
    same(Nothing, &[[1, 1], [3, 5], [64, 33], [1, 1000]], FLOAT)
}

fn elementwise(_: &Role) -> Result<()> {
    struct Chain;
    impl Function for Chain {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            let [a, b] = [inputs[0].clone(), inputs[1].clone()];
            let sum = a.clone().exp() + b.clone() * 2.0;
            let chosen = sum.clone().mask_fill(a.clone().greater(b.clone()), -1.0);
            vec![sum.clone().tanh(), chosen, (sum.transpose() - 0.5).abs().sqrt()]
        }
    }
    same(Chain, &[[7, 33], [7, 33]], FLOAT)?;
    same(Chain, &[[7, 33], [1, 33]], FLOAT)
}

fn reductions(_: &Role) -> Result<()> {
    struct Sums;
    impl Function for Sums {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            let a = inputs[0].clone();
            let total = a.clone().sum().reshape([1, 1]);
            vec![total, a.clone().sum_dim(0), a.clone().mean_dim(1), a.max_dim(1)]
        }
    }
    same(Sums, &[[5, 77]], FLOAT)?;
    same(Sums, &[[64, 64]], FLOAT)
}

fn softmax(_: &Role) -> Result<()> {
    struct Rows;
    impl Function for Rows {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            let a = inputs[0].clone() * 5.0;
            vec![activation::softmax(a.clone(), 1), activation::log_softmax(a, 0)]
        }
    }
    same(Rows, &[[6, 50]], FLOAT)
}

fn products(_: &Role) -> Result<()> {
    struct Product;
    impl Function for Product {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            let [a, b] = [inputs[0].clone(), inputs[1].clone()];
            let product = a.clone().matmul(b.clone());
            vec![
                product.clone(),
                b.transpose().matmul(a.transpose()),
                activation::relu(product) + 1.0,
            ]
        }
    }
    same(Product, &[[32, 48], [48, 16]], TF32)?;
    same(Product, &[[1, 7], [7, 5]], TF32)?;
    // Where a warp has several tiles, and stores them through the same memory.
    same(Product, &[[22, 36], [36, 108]], TF32)?;
    same(Product, &[[64, 64], [64, 256]], TF32)
}

fn layer(_: &Role) -> Result<()> {
    struct Layer;
    impl Function for Layer {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            let [x, w, v] =
                [0, 1, 2].map(|index| Tensor::<Autodiff<B>, 2>::from_inner(inputs[index].clone()).require_grad());
            let hidden = activation::gelu(x.clone().matmul(w.clone()));
            let loss = activation::log_softmax(hidden.matmul(v.clone()), 1)
                .powi_scalar(2)
                .mean();
            let gradients = loss.backward();
            let of = |tensor: &Tensor<Autodiff<B>, 2>| tensor.grad(&gradients).expect("was asked for");
            vec![loss.inner().reshape([1, 1]), of(&x), of(&w), of(&v)]
        }
    }
    same(Layer, &[[8, 12], [12, 16], [16, 10]], TF32)
}

fn our_norm(_: &Role) -> Result<()> {
    struct Norm;
    impl Function for Norm {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            let x = Tensor::<Autodiff<B>, 2>::from_inner(inputs[0].clone()).require_grad();
            let [weight, bias] = [1, 2].map(|index| {
                let row = inputs[index].clone().reshape([-1]);
                Tensor::<Autodiff<B>, 1>::from_inner(row).require_grad()
            });
            let output = layer_norm(x.clone(), weight.clone(), Some(bias.clone()), 1e-5).expect("fits");
            let gradients = (output.clone() * output.clone().exp()).sum().backward();
            let of = |tensor: &Tensor<Autodiff<B>, 1>| tensor.grad(&gradients).expect("was asked for").unsqueeze();
            vec![
                output.inner(),
                x.grad(&gradients).expect("was asked for"),
                of(&weight),
                of(&bias),
            ]
        }
    }
    same(Norm, &[[9, 40], [1, 40], [1, 40]], FLOAT)
}

fn our_softmax(_: &Role) -> Result<()> {
    struct Masked;
    impl Function for Masked {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            let x = Tensor::<Autodiff<B>, 2>::from_inner(inputs[0].clone()).require_grad();
            let scores = x.clone().reshape([1, 1, 8, 8]);
            let output = scaled_masked_softmax(scores, SoftmaxMask::Causal, 0.5).expect("fits");
            let gradients = output.clone().powi_scalar(3).sum().backward();
            vec![
                output.inner().reshape([8, 8]),
                x.grad(&gradients).expect("was asked for"),
            ]
        }
    }
    same(Masked, &[[8, 8]], FLOAT)
}

/// What one thread makes, others read: burn's streams wait for each other by events.
///
/// The first thread keeps its tensor to the end. Where it gives it away, cubecl 0.10 lets another thread write in its
/// place before what the first one reads is copied: it counts who may still read a tensor, but not what waits in their
/// streams.
fn threads(_: &Role) -> Result<()> {
    let device = CudaDevice::default();
    for turn in 0..8 {
        let start = Tensor::<Cuda, 1>::from_data([turn as f32; 200], &device);
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
    let [first, second] = [CudaDevice::new(0), CudaDevice::new(1)];
    // So that the second device has memory already: cubecl 0.10 receives without waiting for the stream that allocates.
    Tensor::<Cuda, 2>::zeros([20, 30], &second).into_data();
    let tensor = Tensor::<Cuda, 2>::random([20, 30], Distribution::Default, &first);
    let expected = (tensor.clone() * 2.0 + 1.0).into_data();
    let moved = (tensor * 2.0).to_device(&second) + 1.0;
    moved.into_data().assert_eq(&expected, true);
    Ok(())
}

/// Layers, forward and backward, with what kernels compute between the products, in f32: burn's own products are of
/// TF32 there and would be found out.
fn our_products(_: &Role) -> Result<()> {
    struct Layers;
    impl Function for Layers {
        fn apply<B: KernelBackend>(&self, inputs: Vec<Tensor<B, 2>>) -> Vec<Tensor<B, 2>> {
            let leaf = |index: usize| Tensor::<Autodiff<B>, 2>::from_inner(inputs[index].clone()).require_grad();
            let [x, w, v] = [0, 1, 2].map(leaf);
            let bias = Tensor::<Autodiff<B>, 1>::from_inner(inputs[3].clone().reshape([-1])).require_grad();
            let hidden = linear(x.clone(), w.clone(), Some(bias.clone())).expect("fits");
            let output = linear_transposed(hidden.tanh(), v.clone()).expect("fits");
            // What is not stored row by row, and begins inside of something.
            let [rows, columns] = output.dims();
            let part = output.clone().slice([0..rows, 1..columns]);
            let product = linear(part.transpose(), output.clone() * 0.5, None).expect("fits");
            let gradients = product.clone().powi_scalar(2).mean().backward();
            let of = |tensor: &Tensor<Autodiff<B>, 2>| tensor.grad(&gradients).expect("was asked for");
            let of_bias = bias.grad(&gradients).expect("was asked for");
            vec![
                output.inner(),
                product.inner(),
                of(&x),
                of(&w),
                of(&v),
                of_bias.unsqueeze(),
            ]
        }
    }
    cubecl_kernels::cuda::use_one_stream();
    let version = cublaslt::enable(&CudaDevice::default())?;
    ensure!(cublaslt::enabled() == Some(version), "it is enabled");
    same(Layers, &[[7, 12], [12, 16], [10, 16], [1, 16]], FLOAT)?;
    same(Layers, &[[130, 33], [33, 65], [70, 65], [1, 65]], FLOAT)?;
    same(Layers, &[[1, 1], [1, 3], [2, 3], [1, 3]], FLOAT)?;
    // The library has no kernel for a bias of one number: burn's product runs, and rounds.
    same(Layers, &[[5, 4], [4, 1], [2, 1], [1, 1]], TF32)
}

/// The device's memory holds the sums once, and not twice.
fn added_in_place(_: &Role) -> Result<()> {
    const ELEMENTS: usize = 16 << 20;
    cubecl_kernels::cuda::use_one_stream();
    let device = CudaDevice::default();
    cublaslt::enable(&device)?;
    let mut sums = Tensor::<Cuda, 1>::zeros([ELEMENTS], (&device, DType::F32));
    let ones = |shape: [usize; 2]| Tensor::<Cuda, 2>::ones(shape, (&device, DType::BF16));
    for turn in 0..3 {
        let place = GradientPlace {
            offset: ELEMENTS - 128,
            parameter: 0,
            is_first: turn == 0,
        };
        sums = Cuda::add_product(sums, ones([4, 5]), ones([5, 3]), place);
        <Cuda as Backend>::sync(&device)?;
    }
    let usage = CudaRuntime::client(&device).memory_usage();
    let reserved = usage.map_err(|error| anyhow!("{error:?}"))?.bytes_reserved;
    let once = (ELEMENTS * size_of::<f32>()) as u64;
    ensure!(
        (once..once * 3 / 2).contains(&reserved),
        "{reserved} bytes for sums of {once}"
    );
    let found = sums.narrow(0, ELEMENTS - 128, 13).into_data();
    let expected = [[15.0; 12].as_slice(), &[0.0]].concat();
    ensure!(found.iter::<f64>().eq(expected.iter().copied()), "{found}");
    Ok(())
}

/// Of bf16, the sum of product and bias is rounded once, where burn rounds the product before.
fn rounded_once(_: &Role) -> Result<()> {
    cubecl_kernels::cuda::use_one_stream();
    let device = CudaDevice::default();
    cublaslt::enable(&device)?;
    let [rows, depth, columns] = [9, 64, 5];
    let numbers = |count: usize, seed: usize| -> Vec<f32> {
        let of = |place: usize| ((place * 29 + seed) % 47) as f32 - 20.0;
        (0..count).map(|place| of(place) / 8.0).collect()
    };
    let (a, b, bias) = (
        numbers(rows * depth, 1),
        numbers(depth * columns, 2),
        numbers(columns, 3),
    );
    let factor = |values: &[f32], shape: [usize; 2]| -> Tensor<Cuda, 2> {
        let data = TensorData::new(values.to_vec(), shape).convert_dtype(DType::BF16);
        Tensor::from_data(data, (&device, DType::BF16))
    };
    let output = linear(
        factor(&a, [rows, depth]),
        factor(&b, [depth, columns]),
        Some(factor(&bias, [1, columns]).reshape([columns])),
    )?;
    let found: Vec<f32> = output.into_data().iter::<f32>().collect();
    let sum = |place: usize| -> f32 {
        let (i, j) = (place / columns, place % columns);
        (0..depth).map(|k| a[i * depth + k] * b[k * columns + j]).sum()
    };
    let of_bias = |place: usize| bias[place % columns];
    let once: Vec<f32> = (0..rows * columns)
        .map(|place| bf16::from_f32(sum(place) + of_bias(place)).to_f32())
        .collect();
    let twice = (0..rows * columns).map(|place| {
        let product = bf16::from_f32(sum(place)).to_f32();
        bf16::from_f32(product + of_bias(place)).to_f32()
    });
    ensure!(twice.ne(once.iter().copied()), "these numbers do not show it");
    ensure!(found == once, "{found:?}, expected {once:?}");
    Ok(())
}

fn failing_product(_: &Role) -> Result<()> {
    cubecl_kernels::cuda::use_one_stream();
    let device = CudaDevice::default();
    cublaslt::enable(&device)?;
    let ones = |shape: [usize; 2]| Tensor::<Cuda, 2>::ones(shape, &device);
    let product = || linear(ones([3, 4]), ones([4, 5]), None).expect("fits").into_data();
    ensure!(product().iter::<f64>().all(|value| value == 4.0));
    // SAFETY: no other thread of this process reads the environment meanwhile, but the one that is to find it.
    unsafe { std::env::set_var("CUDA_EMULATOR_CUBLASLT_FAILS", "1") };
    ensure!(
        product().iter::<f64>().all(f64::is_nan),
        "what was not computed looks whole"
    );
    Ok(())
}

/// Products of bf16 into places of f32, exactly: they are not rounded to bf16 on the way, and the places' neighbours
/// stay.
fn added_products(_: &Role) -> Result<()> {
    cubecl_kernels::cuda::use_one_stream();
    let device = CudaDevice::default();
    cublaslt::enable(&device)?;
    let [rows, depth, columns] = [5, 300, 3];
    let numbers = |count: usize, seed: usize| -> Vec<f64> {
        let of = |place: usize| ((place * 29 + seed) % 47) as f64 - 20.0;
        (0..count).map(|place| of(place) / 8.0).collect()
    };
    let (a, b) = (numbers(rows * depth, 1), numbers(depth * columns, 2));
    let factor = |values: &[f64], shape: [usize; 2]| -> Tensor<Cuda, 2> {
        let data = TensorData::new(values.to_vec(), shape).convert_dtype(DType::BF16);
        Tensor::from_data(data, (&device, DType::BF16))
    };
    for is_shared in [false, true] {
        let mut sums = Tensor::<Cuda, 1>::full([400], 0.5, (&device, DType::F32));
        let shared = is_shared.then(|| sums.clone());
        let mut expected = vec![0.5; 400];
        for (offset, is_first) in [(128, true), (128, false), (256, false)] {
            let place = GradientPlace {
                offset,
                parameter: 0,
                is_first,
            };
            sums = Cuda::add_product(sums, factor(&a, [rows, depth]), factor(&b, [depth, columns]), place);
            for place in 0..rows * columns {
                let (i, j) = (place / columns, place % columns);
                let product: f64 = (0..depth).map(|k| a[i * depth + k] * b[k * columns + j]).sum();
                let sum = &mut expected[offset + place];
                *sum = product + if is_first { 0.0 } else { *sum };
            }
        }
        let found: Vec<f64> = sums.into_data().iter::<f64>().collect();
        ensure!(found == expected, "{found:?}, expected {expected:?}");
        if let Some(shared) = shared {
            let kept = shared.into_data().iter::<f64>().all(|value| value == 0.5);
            ensure!(kept, "what somebody else holds is written over");
        }
    }
    Ok(())
}

fn several_streams(_: &Role) -> Result<()> {
    let device = CudaDevice::default();
    Tensor::<Cuda, 1>::zeros([3], &device).into_data();
    let error = cublaslt::enable(&device)
        .expect_err("its calls would be out of order")
        .to_string();
    ensure!(
        error.contains("expected 1") && error.contains("cuda::choose"),
        "{error}"
    );
    ensure!(cublaslt::enabled().is_none(), "it is not enabled");
    Ok(())
}
