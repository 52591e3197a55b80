//! The operations that are timed, each pass in this crate's form and in burn's operations.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::tensor::{Distribution, Int, Tensor};
use burn_flex::Flex;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::adamw::{self, AdamWBuffers, AdamWStep};
use cubecl_kernels::l2_norm::SquaredPart;
use cubecl_kernels::norm::{self, AddRule, Addends, NormKind, NormParameters};
use cubecl_kernels::random::{RowDropout, RowPlace};
use cubecl_kernels::softmax::{self, SoftmaxMask};
use cubecl_kernels::{bias_dropout_add, bias_gelu, cross_entropy, l2_norm, swiglu};

use super::Args;

/// One timed run, without what prepares it.
pub type Sample = Box<dyn FnMut() -> Duration>;

/// A pass of an operation.
pub struct Case {
    /// The operation.
    pub name: &'static str,
    /// `forward`, `backward`, or what else it has.
    pub pass: &'static str,
    /// This crate's form.
    pub fused: Sample,
    /// The same in burn's operations.
    pub reference: Sample,
}

fn sample<S: 'static, T: 'static>(prepare: impl Fn() -> S + 'static, run: impl Fn(S) -> T + 'static) -> Sample {
    Box::new(move || {
        let inputs = prepare();
        let start = Instant::now();
        let outputs = black_box(run(black_box(inputs)));
        let elapsed = start.elapsed();
        drop(outputs);
        elapsed
    })
}

fn case<S: 'static, T: 'static, U: 'static>(
    name: &'static str,
    pass: &'static str,
    prepare: impl Fn() -> S + Clone + 'static,
    fused: impl Fn(S) -> T + 'static,
    reference: impl Fn(S) -> U + 'static,
) -> Case {
    let (fused, reference) = (sample(prepare.clone(), fused), sample(prepare, reference));
    Case {
        name,
        pass,
        fused,
        reference,
    }
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

/// The same numbers in memory of their own, so that they can be written over.
fn own<const D: usize>(tensor: &Tensor<Flex, D>) -> Tensor<Flex, D> {
    Tensor::from_data(tensor.to_data(), &tensor.device())
}

/// The norms, alone and after a sum.
pub fn norm_cases(args: &Args) -> Vec<Case> {
    let shape = [args.rows, args.d_model];
    let mut cases = Vec::new();
    for (name, kind) in [("layer_norm", NormKind::Layer), ("rms_norm", NormKind::Rms)] {
        let parameters = parameters(args, kind);
        let (input, gradient) = (random(shape), random(shape));
        let statistics = Flex::norm_forward(input.clone(), &parameters).1;
        let (x, p, q) = (input.clone(), parameters.clone(), parameters.clone());
        cases.push(case(
            name,
            "forward",
            move || x.clone(),
            move |x| Flex::norm_forward(x, &p),
            move |x| norm::reference::forward(x, &q),
        ));
        let (p, q) = (parameters.clone(), parameters);
        cases.push(case(
            name,
            "backward",
            move || (input.clone(), statistics.clone(), own(&gradient)),
            move |(x, s, g)| Flex::norm_backward(x, &p, s, g),
            move |(x, s, g)| norm::reference::backward(x, &q, s, g),
        ));
    }
    for (name, probability) in [("add_norm", None), ("add_norm_dropout", Some(0.1))] {
        let parameters = parameters(args, NormKind::Layer);
        let addends = addends(args, probability);
        let rule = addends.rule();
        let ([hidden, _], statistics) = Flex::add_norm_forward(addends.clone(), &parameters);
        let (p, q) = (parameters.clone(), parameters.clone());
        cases.push(case(
            name,
            "forward",
            move || addends.clone(),
            move |addends| Flex::add_norm_forward(addends, &p),
            move |addends| norm::reference::add_forward(addends, &q),
        ));
        let gradients = [random(shape), random(shape)];
        let (p, q) = (parameters.clone(), parameters);
        let (rule, same_rule): (AddRule, AddRule) = (rule.clone(), rule);
        cases.push(case(
            name,
            "backward",
            move || {
                (
                    hidden.clone(),
                    statistics.clone(),
                    gradients.each_ref().map(|g| Some(own(g))),
                )
            },
            move |(h, s, g)| Flex::add_norm_backward(h, &p, s, g, &rule),
            move |(h, s, g)| norm::reference::add_backward(h, &q, s, g, &same_rule),
        ));
    }
    cases
}

fn parameters(args: &Args, kind: NormKind) -> NormParameters<Flex> {
    NormParameters {
        kind,
        weight: random([args.d_model]),
        bias: (kind == NormKind::Layer).then(|| random([args.d_model])),
        epsilon: 1e-5,
    }
}

fn addends(args: &Args, probability: Option<f64>) -> Addends<Flex> {
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
    let (rule, same_rule) = (addends.rule(), addends.rule());
    let gradient = random([args.rows, args.d_model]);
    let wide = random([args.rows, args.d_ff]);
    let (x, b, wide_gradient) = (wide.clone(), random([args.d_ff]), wide);
    let (x2, b2) = (x.clone(), b.clone());
    let both = random([args.rows, 2 * args.d_ff]);
    let (same_both, of_output) = (both.clone(), wide_gradient.clone());
    vec![
        case(
            "bias_dropout_add",
            "forward",
            move || addends.clone(),
            Flex::bias_dropout_add,
            bias_dropout_add::reference::forward,
        ),
        case(
            "bias_dropout_add",
            "backward",
            move || own(&gradient),
            move |g| Flex::bias_dropout_add_backward(g, &rule),
            move |g| bias_dropout_add::reference::backward(g, &same_rule),
        ),
        case(
            "bias_gelu",
            "forward",
            move || (x.clone(), b.clone()),
            |(x, b)| Flex::bias_gelu(x, b),
            |(x, b)| bias_gelu::reference::forward(x, b),
        ),
        case(
            "bias_gelu",
            "backward",
            move || (x2.clone(), b2.clone(), own(&wide_gradient)),
            |(x, b, g)| Flex::bias_gelu_backward(x, b, g),
            |(x, b, g)| bias_gelu::reference::backward(x, b, g),
        ),
        case(
            "swiglu",
            "forward",
            move || both.clone(),
            Flex::swiglu,
            swiglu::reference::forward,
        ),
        case(
            "swiglu",
            "backward",
            move || (own(&same_both), of_output.clone()),
            |(x, g)| Flex::swiglu_backward(x, g),
            |(x, g)| swiglu::reference::backward(x, g),
        ),
    ]
}

/// The softmax of scores.
pub fn softmax_cases(args: &Args) -> Vec<Case> {
    let &[batch, heads, seq] = &args.scores[..] else {
        unreachable!("clap wants three numbers")
    };
    let scores = random([batch, heads, seq, seq]);
    let gradient = random([batch, heads, seq, seq]);
    let output = Flex::scaled_masked_softmax(scores.clone(), SoftmaxMask::Causal, 0.125);
    vec![
        case(
            "softmax",
            "forward",
            move || own(&scores),
            |x| Flex::scaled_masked_softmax(x, SoftmaxMask::Causal, 0.125),
            |x| softmax::reference::forward(x, SoftmaxMask::Causal, 0.125),
        ),
        case(
            "softmax",
            "backward",
            move || (output.clone(), own(&gradient)),
            |(y, g)| Flex::scaled_masked_softmax_backward(y, g, 0.125),
            |(y, g)| softmax::reference::backward(y, g, 0.125),
        ),
    ]
}

pub fn loss_cases(args: &Args) -> Vec<Case> {
    let (rows, valid) = (args.rows, args.vocabulary);
    let logits = random([rows, valid]);
    let device = logits.device();
    let targets = Tensor::<Flex, 1, Int>::random([rows], Distribution::Uniform(0.0, valid as f64), &device);
    let gradient = Tensor::<Flex, 1>::full([rows], 1.0 / rows as f64, &device);
    let terms = Flex::cross_entropy_statistics(logits.clone(), targets.clone(), valid);
    let (x, t) = (logits.clone(), targets.clone());
    vec![
        case(
            "cross_entropy",
            "forward",
            move || (x.clone(), t.clone()),
            move |(x, t)| Flex::cross_entropy_statistics(x, t, valid),
            move |(x, t)| cross_entropy::reference::statistics(x, t, valid),
        ),
        case(
            "cross_entropy",
            "backward",
            move || {
                let of_rows = (terms.clone(), gradient.clone());
                (own(&logits), targets.clone(), of_rows)
            },
            move |(x, t, (l, g))| Flex::cross_entropy_backward(x, t, valid, l, g),
            move |(x, t, (l, g))| cross_entropy::reference::backward(x, t, valid, l, g),
        ),
    ]
}

/// AdamW and the sum of squares.
pub fn optimizer_cases(args: &Args) -> Vec<Case> {
    let gradient = random([args.parameters]);
    let all = [SquaredPart {
        buffer: 0,
        range: 0..args.parameters,
        sum: 0,
    }];
    let buffers = AdamWBuffers {
        parameter: random([args.parameters]),
        moment_1: random([args.parameters]),
        moment_2: random([args.parameters]).abs(),
    };
    let step = AdamWStep {
        learning_rate: 1e-3,
        beta_1: 0.9,
        beta_2: 0.95,
        epsilon: 1e-8,
        weight_decay: 0.1,
        gradient_scale: 1.0,
        time: 10,
    };
    let g = gradient.clone();
    vec![
        case(
            "adamw",
            "step",
            move || {
                let buffers = AdamWBuffers {
                    parameter: own(&buffers.parameter),
                    moment_1: own(&buffers.moment_1),
                    moment_2: own(&buffers.moment_2),
                };
                (buffers, g.clone())
            },
            move |(buffers, g)| Flex::adamw(buffers, g, &step, None),
            move |(buffers, g)| adamw::reference::step(buffers, g, &step, None),
        ),
        case(
            "sum_of_squares",
            "all",
            move || vec![gradient.clone()],
            {
                let all = all.clone();
                move |buffers| Flex::sums_of_squares(buffers, &all, 1)
            },
            move |buffers| l2_norm::reference::sums_of_squares(buffers, &all, 1),
        ),
    ]
}
