//! What the matrix products of a GPT training step cost on the CPU: `linear` of this crate, burn's operations, and the
//! `gemm` crate with nothing around it.
//!
//! ```sh
//! RAYON_NUM_THREADS=2 cargo run --release -p cubecl-kernels --example bench_linear
//! ```

#[allow(dead_code, reason = "shared with other benches")]
mod timing;

use burn::tensor::{Device, Distribution, Tensor};
use burn_backend::ops::ModuleOps;
use burn_flex::{Flex, FlexTensor};
use cubecl_kernels::linear::{LinearInputs, LinearWanted, WeightOrder, affine, affine_backward};
use timing::times;

const ROWS: usize = 1024;
const RUNS: usize = 15;

fn main() {
    println!("rows {ROWS}; GFLOP/s by the processors' time of one core, and by the wall at best; f32");
    for (name, d_input, d_output, order) in [
        ("qkv", 384, 1152, WeightOrder::InputFirst),
        ("proj", 384, 384, WeightOrder::InputFirst),
        ("fc1", 384, 1536, WeightOrder::InputFirst),
        ("fc2", 1536, 384, WeightOrder::InputFirst),
        ("head", 384, 8192, WeightOrder::OutputFirst),
    ] {
        bench(name, [d_input, d_output], order);
    }
}

fn bench(name: &str, [d_input, d_output]: [usize; 2], order: WeightOrder) {
    let device = Device::flex();
    let random = |shape: [usize; 2]| Tensor::<2>::random(shape, Distribution::Default, &device);
    let input = random([ROWS, d_input]);
    let weight = random(match order {
        WeightOrder::InputFirst => [d_input, d_output],
        WeightOrder::OutputFirst => [d_output, d_input],
    });
    let bias = Tensor::<1>::random([d_output], Distribution::Default, &device);
    let gradient = random([ROWS, d_output]);
    let operations = 2.0 * (ROWS * d_input * d_output) as f64;
    let report = |what: &str, times: timing::Times| {
        println!(
            "{name:5} {what:32} {:8.3} ms  {:6.1} a core, {:6.1} at best",
            times.processors.as_secs_f64() * 1e3,
            operations / times.processors.as_secs_f64() / 1e9,
            operations / times.best.as_secs_f64() / 1e9
        );
    };

    let inputs = || LinearInputs {
        input: input.clone(),
        weight: weight.clone(),
        bias: (order == WeightOrder::InputFirst).then(|| bias.clone()),
        order,
    };
    let burn_weight = match order {
        WeightOrder::InputFirst => weight.clone(),
        WeightOrder::OutputFirst => weight.clone().transpose(),
    };
    let burn_forward = || {
        let bias = (order == WeightOrder::InputFirst).then(|| flex(&bias));
        Flex::linear(flex(&input), flex(&burn_weight), bias)
    };
    let wanted = |input, weight, bias| LinearWanted { input, weight, bias };
    let backward = |wanted| affine_backward(input.clone(), weight.clone(), order, gradient.clone(), wanted);
    let (x, dy) = (flex(&input), flex(&gradient));
    let w = flex(&burn_weight);

    report("forward, here", times(RUNS, || affine(inputs())));
    report("forward, burn", times(RUNS, burn_forward));
    report("forward, gemm alone", bare(&input, &burn_weight, d_output));
    report(
        "of the input, here",
        times(RUNS, || backward(wanted(true, false, false))),
    );
    report(
        "of the input, burn",
        times(RUNS, || Flex::linear_x_backward(w.clone(), dy.clone())),
    );
    report(
        "of the input, gemm alone",
        bare(&gradient, &burn_weight.clone().transpose(), d_input),
    );
    report(
        "of the weight, here",
        times(RUNS, || backward(wanted(false, true, false))),
    );
    report(
        "of the weight, burn",
        times(RUNS, || Flex::linear_weight_backward(x.clone(), dy.clone())),
    );
    report(
        "of the weight, gemm alone",
        bare(&input.clone().transpose(), &gradient, d_output),
    );
    report(
        "of the bias, here",
        times(RUNS, || backward(wanted(false, false, true))),
    );
    report(
        "of the bias, burn",
        times(RUNS, || Flex::linear_bias_backward(dy.clone())),
    );
}

fn flex<const D: usize>(tensor: &Tensor<D>) -> FlexTensor {
    let tensor = tensor.clone().try_into_primitive::<Flex>();
    tensor.expect("it is on the CPU")
}

/// The product by the `gemm` crate and its threads, into memory that is there.
fn bare(a: &Tensor<2>, b: &Tensor<2>, columns: usize) -> timing::Times {
    let (rows, depth) = (a.dims()[0], a.dims()[1]);
    assert_eq!(b.dims(), [depth, columns]);
    let (a, b) = (flex(a), flex(b));
    let (a_strides, b_strides) = (a.layout().strides(), b.layout().strides());
    let mut output = vec![0.0f32; rows * columns];
    times(RUNS, || {
        // SAFETY: the tensors are whole, so that their strides stay inside their memory, and the output is as large.
        unsafe {
            gemm::gemm(
                rows,
                columns,
                depth,
                output.as_mut_ptr(),
                1,
                columns as isize,
                false,
                a.storage::<f32>().as_ptr(),
                a_strides[1],
                a_strides[0],
                b.storage::<f32>().as_ptr(),
                b_strides[1],
                b_strides[0],
                0.0f32,
                1.0f32,
                false,
                false,
                false,
                gemm::Parallelism::Rayon(0),
            );
        }
    })
}
