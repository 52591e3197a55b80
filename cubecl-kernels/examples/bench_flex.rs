//! Times the row and element operations on the CPU, forward and backward, at the sizes of a small GPT: fused, in burn's
//! operations, and in PyTorch where `BURN_MEGATRON_PYTHON` names a Python that has it.
//!
//! The three take turns, so that what else the machine does hits all of them; prints medians and the best of all
//! samples, in microseconds. Run it with `--release`.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use burn::tensor::{Distribution, Int, Tensor};
use burn_flex::Flex;
use clap::Parser;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::adamw::{self, AdamWBuffers, AdamWStep};
use cubecl_kernels::norm::{self, AddRule, Addends, NormKind, NormParameters};
use cubecl_kernels::random::{RowDropout, RowPlace};
use cubecl_kernels::softmax::{self, SoftmaxMask};
use cubecl_kernels::{bias_dropout_add, bias_gelu, cross_entropy, l2_norm, swiglu};

/// Times the operations for the CPU.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// Tokens of a micro-batch.
    #[arg(long, default_value_t = 1024)]
    rows: usize,
    /// The model's width.
    #[arg(long, default_value_t = 384)]
    d_model: usize,
    /// The width of the feed-forward layers.
    #[arg(long, default_value_t = 1536)]
    d_ff: usize,
    /// The padded vocabulary.
    #[arg(long, default_value_t = 8192)]
    vocabulary: usize,
    /// The elements that AdamW updates.
    #[arg(long, default_value_t = 12_600_000)]
    parameters: usize,
    /// Batch, heads and sequence of attention scores.
    #[arg(long, num_args = 3, default_values_t = [4, 6, 256])]
    scores: Vec<usize>,
    /// How many turns each form gets.
    #[arg(long, default_value_t = 5)]
    turns: usize,
    /// Samples of a turn.
    #[arg(long, default_value_t = 20)]
    samples: usize,
    /// Only operations whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// One timed run, without what prepares it.
type Sample = Box<dyn FnMut() -> Duration>;

/// A pass of an operation.
struct Case {
    name: &'static str,
    pass: &'static str,
    fused: Sample,
    reference: Sample,
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

fn norm_cases(args: &Args) -> Vec<Case> {
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

fn element_cases(args: &Args) -> Vec<Case> {
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

fn softmax_cases(args: &Args) -> Vec<Case> {
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

fn loss_cases(args: &Args) -> Vec<Case> {
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

fn optimizer_cases(args: &Args) -> Vec<Case> {
    let gradient = random([args.parameters]);
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
            Flex::sum_of_squares,
            l2_norm::reference::sum_of_squares,
        ),
    ]
}

/// PyTorch in a process of its own.
struct PyTorch {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl PyTorch {
    /// Starts it, if the environment names a Python.
    fn start(args: &Args) -> anyhow::Result<Option<Self>> {
        let Some(python) = std::env::var_os("BURN_MEGATRON_PYTHON") else {
            return Ok(None);
        };
        let sizes = [args.rows, args.d_model, args.d_ff, args.vocabulary, args.parameters];
        let sizes = sizes.iter().chain(&args.scores).map(usize::to_string);
        let threads = std::thread::available_parallelism()?.to_string();
        let mut child = Command::new(python)
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/bench_flex.py"))
            .args(sizes)
            .env("BENCH_THREADS", threads)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the Python of BURN_MEGATRON_PYTHON")?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("its output is piped")?);
        Ok(Some(Self {
            child,
            requests,
            answers,
        }))
    }

    /// Samples of a case, in seconds.
    fn samples(&mut self, case: &Case, samples: usize) -> anyhow::Result<Vec<f64>> {
        let requests = self.requests.as_mut().context("its input is open")?;
        writeln!(requests, "{} {} {samples}", case.name, case.pass)?;
        requests.flush()?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        ensure!(!answer.is_empty(), "python ended at {} {}", case.name, case.pass);
        // Its threads spin for a moment after their work.
        std::thread::sleep(Duration::from_millis(250));
        let seconds = answer.split_whitespace().map(str::parse);
        Ok(seconds.collect::<Result<_, _>>()?)
    }

    fn finish(mut self) -> anyhow::Result<()> {
        drop(self.requests.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "python ended with {status}");
        Ok(())
    }
}

/// The median and the smallest, in microseconds.
fn summary(mut seconds: Vec<f64>) -> [f64; 2] {
    seconds.sort_by(f64::total_cmp);
    match seconds.is_empty() {
        true => [f64::NAN; 2],
        false => [seconds[seconds.len() / 2], seconds[0]].map(|seconds| seconds * 1e6),
    }
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut torch = PyTorch::start(&args)?;
    let makers = [norm_cases, element_cases, softmax_cases, loss_cases, optimizer_cases];
    println!(
        "median (best) in microseconds, {} turns of {} samples",
        args.turns, args.samples
    );
    println!(
        "{:<28}{:>20}{:>20}{:>20}{:>10}",
        "operation", "fused", "reference", "PyTorch", "of it"
    );
    for make in makers {
        for mut case in make(&args) {
            if !case.name.contains(&args.only) {
                continue;
            }
            let [mut fused, mut reference, mut pytorch] = [Vec::new(), Vec::new(), Vec::new()];
            (case.fused)();
            for _ in 0..args.turns {
                fused.extend((0..args.samples).map(|_| (case.fused)().as_secs_f64()));
                // The reference is slow, and not what this is about.
                reference.extend((0..args.samples.div_ceil(4)).map(|_| (case.reference)().as_secs_f64()));
                if let Some(torch) = &mut torch {
                    pytorch.extend(torch.samples(&case, args.samples)?);
                }
            }
            let [fused, reference, pytorch] = [fused, reference, pytorch].map(summary);
            let column = |[median, best]: [f64; 2]| format!("{median:.0} ({best:.0})");
            println!(
                "{:<28}{:>20}{:>20}{:>20}{:>9.2}x",
                format!("{} {}", case.name, case.pass),
                column(fused),
                column(reference),
                column(pytorch),
                fused[0] / pytorch[0]
            );
        }
    }
    match torch {
        Some(torch) => torch.finish(),
        None => Ok(()),
    }
}
