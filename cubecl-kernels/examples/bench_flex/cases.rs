//! The operations that are timed, each pass on its own.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Distribution, Int, Tensor};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep, adamw};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::cross_entropy::cross_entropy;
use cubecl_kernels::l2_norm::sum_of_squares;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm};
use cubecl_kernels::random::{RowDropout, RowPlace};
use cubecl_kernels::softmax::{SoftmaxMask, scaled_masked_softmax};
use cubecl_kernels::swiglu::swiglu;
use cubecl_kernels::{KernelError, Kernels, set_kernels};

use super::Args;
use super::passes::{Passes, norm};

/// A pass of an operation.
pub struct Case {
    /// The operation.
    pub name: &'static str,
    /// `forward`, `backward`, or what else it has.
    pub pass: &'static str,
    run: Box<dyn Fn() -> Duration>,
}

impl Case {
    /// Times a run in this crate's form or in burn's operations, without what prepares it.
    pub fn sample(&self, kernels: Kernels) -> Duration {
        set_kernels(kernels);
        (self.run)()
    }
}

fn case<S: 'static, T: 'static>(
    name: &'static str,
    pass: &'static str,
    prepare: impl Fn() -> S + 'static,
    run: impl Fn(S) -> Result<T, KernelError> + 'static,
) -> Case {
    let run = Box::new(move || {
        let inputs = prepare();
        let start = Instant::now();
        let outputs = black_box(run(black_box(inputs)));
        let elapsed = start.elapsed();
        drop(outputs.expect("the inputs fit"));
        elapsed
    });
    Case { name, pass, run }
}

fn forward<S: 'static, T: 'static>(
    name: &'static str,
    prepare: impl Fn() -> S + 'static,
    run: impl Fn(S) -> Result<T, KernelError> + 'static,
) -> Case {
    case(name, "forward", prepare, run)
}

/// Returns the case of a backward pass, which `add` adds.
fn backward(name: &'static str, add: impl Fn(&mut Passes) -> Result<(), KernelError> + 'static) -> Case {
    let prepare = move || {
        let mut passes = Passes::new(&Device::flex());
        add(&mut passes).expect("the inputs fit");
        passes
    };
    case(name, "backward", prepare, |passes| Ok(passes.run()))
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Device::flex())
}

/// The same numbers in memory of their own, so that they can be written over.
fn own<const D: usize>(tensor: &Tensor<D>) -> Tensor<D> {
    Tensor::from_data(tensor.to_data(), &tensor.device())
}

/// The norms, alone and after a sum.
pub fn norm_cases(args: &Args) -> Vec<Case> {
    let shape = [args.rows, args.d_model];
    let mut cases = Vec::new();
    for (name, kind) in [("layer_norm", NormKind::Layer), ("rms_norm", NormKind::Rms)] {
        let inputs = (random(shape), parameters(args, kind));
        let (same, gradient) = (inputs.clone(), random(shape));
        cases.push(forward(name, move || inputs.clone(), |(x, p)| norm(x, p)));
        cases.push(backward(name, move |passes| {
            let (x, p) = same.clone();
            let output = norm(passes.track(x), passes.track_parameters(p))?;
            passes.add([output], [own(&gradient)]);
            Ok(())
        }));
    }
    for (name, probability) in [("add_norm", None), ("add_norm_dropout", Some(0.1))] {
        let inputs = (addends(args, probability), parameters(args, NormKind::Layer));
        let (same, gradients) = (inputs.clone(), [random(shape), random(shape)]);
        cases.push(forward(name, move || inputs.clone(), |(a, p)| add_norm(a, p)));
        cases.push(backward(name, move |passes| {
            let (a, p) = same.clone();
            let outputs = add_norm(passes.track_addends(a), passes.track_parameters(p))?;
            passes.add(outputs, gradients.each_ref().map(own));
            Ok(())
        }));
    }
    cases
}

fn parameters(args: &Args, kind: NormKind) -> NormParameters {
    NormParameters {
        kind,
        weight: random([args.d_model]),
        bias: (kind == NormKind::Layer).then(|| random([args.d_model])),
        epsilon: 1e-5,
    }
}

fn addends(args: &Args, probability: Option<f64>) -> Addends {
    let places = (0..args.rows as u32).map(|row| RowPlace {
        position: row % 256,
        sample: row / 256,
    });
    Addends {
        input: random([args.rows, args.d_model]),
        bias: Some(random([args.d_model])),
        residual: random([args.rows, args.d_model]),
        dropout: probability.map(|probability| RowDropout {
            key: [1, 2],
            iteration: 3,
            first_head: 0,
            probability,
            places: places.collect(),
        }),
    }
}

/// Sums with dropout and activation functions.
pub fn element_cases(args: &Args) -> Vec<Case> {
    let addends = addends(args, Some(0.1));
    let (same_addends, gradient) = (addends.clone(), random([args.rows, args.d_model]));
    let wide = (random([args.rows, args.d_ff]), random([args.d_ff]));
    let (same_wide, wide_gradient) = (wide.clone(), random([args.rows, args.d_ff]));
    let both = random([args.rows, 2 * args.d_ff]);
    let (same_both, of_output) = (both.clone(), wide_gradient.clone());
    vec![
        forward("bias_dropout_add", move || addends.clone(), bias_dropout_add),
        backward("bias_dropout_add", move |passes| {
            let output = bias_dropout_add(passes.track_addends(same_addends.clone()))?;
            passes.add([output], [own(&gradient)]);
            Ok(())
        }),
        forward("bias_gelu", move || wide.clone(), |(x, b)| bias_gelu(x, b)),
        backward("bias_gelu", move |passes| {
            let (x, b) = same_wide.clone();
            let output = bias_gelu(passes.track(x), passes.track(b))?;
            passes.add([output], [own(&wide_gradient)]);
            Ok(())
        }),
        forward("swiglu", move || both.clone(), swiglu),
        backward("swiglu", move |passes| {
            let output = swiglu(passes.track(own(&same_both)))?;
            passes.add([output], [of_output.clone()]);
            Ok(())
        }),
    ]
}

/// The softmax of scores.
pub fn softmax_cases(args: &Args) -> Vec<Case> {
    let &[batch, heads, seq] = &args.scores[..] else {
        unreachable!("clap wants three numbers")
    };
    let softmax = |x| scaled_masked_softmax(x, SoftmaxMask::Causal, 0.125);
    let scores = random([batch, heads, seq, seq]);
    let (same_scores, gradient) = (scores.clone(), random([batch, heads, seq, seq]));
    vec![
        forward("softmax", move || own(&scores), softmax),
        backward("softmax", move |passes| {
            let output = softmax(passes.track(same_scores.clone()))?;
            passes.add([output], [own(&gradient)]);
            Ok(())
        }),
    ]
}

pub fn loss_cases(args: &Args) -> Vec<Case> {
    let (rows, valid) = (args.rows, args.vocabulary);
    let (logits, device) = (random([rows, valid]), Device::flex());
    let targets = Tensor::<1, Int>::random([rows], Distribution::Uniform(0.0, valid as f64), &device);
    let gradient = Tensor::<1>::full([rows], 1.0 / rows as f64, &device);
    let inputs = (logits.clone(), targets.clone());
    let losses = move |x, t| cross_entropy(x, t, valid, |whole| whole);
    vec![
        forward("cross_entropy", move || inputs.clone(), move |(x, t)| losses(x, t)),
        backward("cross_entropy", move |passes| {
            let output = losses(passes.track(own(&logits)), targets.clone())?;
            passes.add([output], [gradient.clone()]);
            Ok(())
        }),
    ]
}

/// AdamW and the sum of squares.
pub fn optimizer_cases(args: &Args) -> Vec<Case> {
    let gradient = random([args.parameters]);
    let buffers = [0, 1, 2].map(|_| random([args.parameters]).abs());
    let step = AdamWStep {
        learning_rate: 1e-3,
        beta_1: 0.9,
        beta_2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        gradient_scale: 1.0,
        time: 10,
    };
    let same_gradient = gradient.clone();
    vec![
        case(
            "adamw",
            "step",
            move || (AdamWBuffers::from_array(buffers.each_ref().map(own)), gradient.clone()),
            move |(buffers, g)| adamw(buffers, g, &step, None),
        ),
        case(
            "sum_of_squares",
            "all",
            move || vec![same_gradient.clone()],
            sum_of_squares,
        ),
    ]
}
