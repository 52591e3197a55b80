//! On the CPU, results do not depend on how many threads share the work: every operation, forward and backward, bit for
//! bit, at sizes that are shared out. And threads that each have a graph of their own do not take each other's
//! gradients.

use anyhow::ensure;
use burn::tensor::{DType, Int, Tensor, TensorData};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWStep, adamw};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::cross_entropy::cross_entropy;
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, PackedHeads, flash_attention, flash_attention_packed, unpack,
};
use cubecl_kernels::l2_norm::sum_of_squares;
use cubecl_kernels::linear::{linear, linear_transposed};
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, layer_norm, rms_norm};
use cubecl_kernels::precision::compute_type;
use cubecl_kernels::rotary::{RotaryAngles, RotaryLayout, rotary};
use cubecl_kernels::softmax::{SoftmaxMask, scaled_masked_softmax};
use cubecl_kernels::swiglu::swiglu;
use libtest_mimic::Trial;

use crate::support::compare::{backward, normal};
use crate::support::dropout::dropout;
use crate::support::setting::{Setting, type_name};

/// Results of an operation, by name, in bytes.
type Results = Vec<(&'static str, Vec<u8>)>;

/// Rows, more than one block of any operation; prime.
const ROWS: usize = 1511;
const COLUMNS: usize = 96;

/// An operation, and what it computes.
type Operation = (&'static str, fn(&Setting) -> anyhow::Result<Results>);

pub fn trials() -> Vec<Trial> {
    let operations: [Operation; 6] = [
        ("attention", attention),
        ("softmax_and_cross_entropy", rows_of_scores),
        ("linear", products),
        ("norms", norms),
        ("elements", elements),
        ("optimizer", optimizer),
    ];
    let mut trials = Vec::new();
    for dtype in [DType::F32, DType::BF16] {
        for (what, operation) in operations {
            let name = format!(
                "flex_{}::{what}_compute_the_same_bits_on_any_number_of_threads",
                type_name(dtype)
            );
            trials.push(Trial::test(name, move || Ok(same_on_any_number(dtype, operation)?)));
        }
    }
    let name = "graphs_of_many_threads_keep_their_gradients";
    trials.push(Trial::test(name, || Ok(graphs_keep_their_gradients()?)));
    trials
}

/// After every backward pass, burn goes through the graphs of all threads and frees what no tensor refers to.
fn graphs_keep_their_gradients() -> anyhow::Result<()> {
    const THREADS: u64 = 4;
    const PASSES: usize = 2000;
    let train = |seed: u64| {
        let setting = trained(DType::F32);
        // Used again in every pass: the graph of a later one does not know the leaf, only what was made of it.
        let leaf = leaf(&setting, [1, 8], seed);
        for pass in 0..PASSES {
            let output = swiglu(leaf.clone()).and_then(swiglu)?;
            let found = leaf.grad(&output.sum().backward());
            ensure!(found.is_some(), "thread {seed}, pass {pass}: no gradient");
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || train(seed))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread that trains does not panic"))
    })
}

fn same_on_any_number(dtype: DType, operation: fn(&Setting) -> anyhow::Result<Results>) -> anyhow::Result<()> {
    let mut first: Option<Results> = None;
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let results = pool.install(|| operation(&trained(dtype)))?;
        let Some(expected) = &first else {
            first = Some(results);
            continue;
        };
        for ((what, bytes), (_, expected)) in results.iter().zip(expected) {
            ensure!(
                bytes == expected,
                "{what}: {threads} threads compute other bits than one"
            );
        }
    }
    Ok(())
}

/// Returns the setting of the CPU with gradients.
fn trained(dtype: DType) -> Setting {
    let mut setting = Setting::flex(dtype);
    setting.device = setting.device.autodiff();
    setting
}

fn bytes<const D: usize>(tensor: Tensor<D>) -> Vec<u8> {
    tensor.into_data().into_bytes().to_vec()
}

/// A leaf of drawn numbers.
fn leaf<const D: usize>(setting: &Setting, shape: [usize; D], seed: u64) -> Tensor<D> {
    let drawn = normal(shape.iter().product(), seed);
    setting.tensor(&drawn, shape).require_grad()
}

/// The output's bytes, and those of its matrix leaves' and vector leaves' gradients.
fn pass<const D: usize, const E: usize>(
    setting: &Setting,
    output: Tensor<D>,
    leaves: Vec<(&'static str, Tensor<E>)>,
    vectors: Vec<(&'static str, Tensor<1>)>,
) -> Results {
    let dims = output.dims();
    let seed = setting
        .of(output.dtype())
        .tensor(&normal(dims.iter().product(), 99), dims);
    let mut results = vec![("the output", bytes(output.clone()))];
    let gradients = backward(vec![[output, seed]]);
    for (what, leaf) in leaves {
        results.push((what, bytes(leaf.grad(&gradients).expect("tracked"))));
    }
    for (what, leaf) in vectors {
        results.push((what, bytes(leaf.grad(&gradients).expect("tracked"))));
    }
    results
}

fn attention(setting: &Setting) -> anyhow::Result<Results> {
    let (tokens, d_head) = (333, 32);
    let options = AttentionOptions {
        mask: AttentionMask::Causal,
        scale: 0.2,
        dropout: Some(dropout(2 * tokens, 0.2)),
        documents: None,
        key_lengths: None,
        is_deterministic: true,
    };
    let query = leaf(setting, [2, tokens, 4, d_head], 1);
    let [key, value] = [2, 3].map(|seed| leaf(setting, [2, tokens, 2, d_head], seed));
    let output = flash_attention(query.clone(), key.clone(), value.clone(), options.clone())?;
    let leaves = vec![("dq", query), ("dk", key), ("dv", value)];
    let mut results = pass(setting, output, leaves, Vec::new());

    let heads = PackedHeads { queries: 4, keys: 2 };
    let packed = leaf(setting, [2, tokens, heads.total(), d_head], 4);
    let output = flash_attention_packed(packed.clone(), heads, options.clone())?;
    results.extend(pass(setting, output, vec![("packed", packed.clone())], Vec::new()));
    let [query, key, value] = unpack(packed.clone(), heads);
    let output = flash_attention(query, key, value, options)?;
    results.extend(pass(setting, output, vec![("unpacked", packed)], Vec::new()));
    Ok(results)
}

fn rows_of_scores(setting: &Setting) -> anyhow::Result<Results> {
    let scores = leaf(setting, [2, 3, 130, 130], 1);
    let output = scaled_masked_softmax(scores.clone(), SoftmaxMask::Causal, 0.7)?;
    let mut results = pass(setting, output, vec![("scores", scores)], Vec::new());

    let logits = leaf(setting, [ROWS, COLUMNS], 2);
    let targets: Vec<i64> = (0..ROWS as i64).map(|row| row % 90).collect();
    let targets = Tensor::<1, Int>::from_data(TensorData::new(targets, [ROWS]), &setting.device);
    let loss = cross_entropy(logits.clone(), targets, 90, |own| own)?;
    results.extend(pass(setting, loss, vec![("logits", logits)], Vec::new()));
    // Few rows that are long.
    let logits = leaf(setting, [3, 50_304], 3);
    let targets = Tensor::<1, Int>::from_data(TensorData::new(vec![1i64, 50_000, 7], [3]), &setting.device);
    let loss = cross_entropy(logits.clone(), targets, 50_257, |own| own)?;
    results.extend(pass(setting, loss, vec![("logits of long rows", logits)], Vec::new()));
    Ok(results)
}

fn products(setting: &Setting) -> anyhow::Result<Results> {
    // A deep product of few rows, as of a weight's gradient, and a shallow one of many.
    let mut results = Vec::new();
    for (rows, d_input, d_output) in [(ROWS, COLUMNS, 200), (7, 3000, 260)] {
        let input = leaf(setting, [rows, d_input], 1);
        let weight = leaf(setting, [d_input, d_output], 2);
        let bias = leaf(setting, [d_output], 3);
        let output = linear(input.clone(), weight.clone(), Some(bias.clone()))?;
        let leaves = vec![("input", input.clone()), ("weight", weight)];
        results.extend(pass(setting, output, leaves, vec![("bias", bias)]));
        let weight = leaf(setting, [d_output, d_input], 4);
        let output = linear_transposed(input.clone(), weight.clone())?;
        let leaves = vec![("input of the turned", input), ("turned weight", weight)];
        results.extend(pass(setting, output, leaves, Vec::new()));
    }
    Ok(results)
}

fn norms(setting: &Setting) -> anyhow::Result<Results> {
    let input = leaf(setting, [ROWS, COLUMNS], 1);
    let (weight, bias) = (leaf(setting, [COLUMNS], 2), leaf(setting, [COLUMNS], 3));
    let output = layer_norm(input.clone(), weight.clone(), Some(bias.clone()), 1e-5)?;
    let vectors = vec![("layer weight", weight.clone()), ("layer bias", bias.clone())];
    let mut results = pass(setting, output, vec![("layer input", input.clone())], vectors);
    let output = rms_norm(input.clone(), weight.clone(), 1e-5)?;
    let vectors = vec![("rms weight", weight.clone())];
    results.extend(pass(setting, output, vec![("rms input", input.clone())], vectors));

    let (residual, of_sum) = (leaf(setting, [ROWS, COLUMNS], 4), leaf(setting, [COLUMNS], 5));
    let addends = Addends {
        input: input.clone(),
        bias: Some(of_sum.clone()),
        residual: residual.clone(),
        dropout: Some(dropout(ROWS, 0.2)),
    };
    let parameters = NormParameters {
        kind: NormKind::Layer,
        weight: weight.clone(),
        bias: Some(bias.clone()),
        epsilon: 1e-5,
    };
    let [hidden, output] = add_norm(addends, parameters)?;
    results.push(("hidden", bytes(hidden)));
    let leaves = vec![("addend", input), ("residual", residual)];
    let vectors = vec![
        ("the sum's bias", of_sum),
        ("its norm's weight", weight),
        ("its norm's bias", bias),
    ];
    results.extend(pass(setting, output, leaves, vectors));
    Ok(results)
}

fn elements(setting: &Setting) -> anyhow::Result<Results> {
    let input = leaf(setting, [ROWS, COLUMNS], 1);
    let bias = leaf(setting, [COLUMNS], 2);
    let output = bias_gelu(input.clone(), bias.clone())?;
    let vectors = vec![("gelu's bias", bias.clone())];
    let mut results = pass(setting, output, vec![("gelu's input", input.clone())], vectors);
    let output = swiglu(input.clone())?;
    results.extend(pass(
        setting,
        output,
        vec![("swiglu's input", input.clone())],
        Vec::new(),
    ));
    for layout in [RotaryLayout::Halves, RotaryLayout::Interleaved] {
        let wide = setting.computed();
        let table = |seed| wide.tensor(&normal(ROWS * 6, seed), [ROWS, 6]);
        let angles = RotaryAngles {
            cosine: table(4),
            sine: table(5),
            positions: Tensor::arange(0..ROWS as i64, &setting.device),
            layout,
        };
        let packed = leaf(setting, [ROWS, 2, 3, COLUMNS / 6], 6);
        let output = rotary(packed.clone(), Some(angles))?;
        results.extend(pass(setting, output, vec![("rotary's input", packed)], Vec::new()));
    }
    let residual = leaf(setting, [ROWS, COLUMNS], 3);
    let output = bias_dropout_add(Addends {
        input: input.clone(),
        bias: Some(bias.clone()),
        residual: residual.clone(),
        dropout: Some(dropout(ROWS, 0.2)),
    })?;
    let leaves = vec![("addend", input), ("residual", residual)];
    results.extend(pass(setting, output, leaves, vec![("the sum's bias", bias)]));
    Ok(results)
}

fn optimizer(setting: &Setting) -> anyhow::Result<Results> {
    let count = 150_001;
    let main = setting.inner(compute_type(setting.dtype));
    let squares: Vec<f64> = normal(count, 3).iter().map(|x| x * x).collect();
    let gradient = setting.tensor(&normal(count, 4), [count]).inner();
    let buffers = AdamWBuffers {
        parameter: main.tensor(&normal(count, 1), [count]),
        moment_1: main.tensor(&normal(count, 2), [count]),
        moment_2: main.tensor(&squares, [count]),
    };
    let step = AdamWStep {
        learning_rate: 0.05,
        beta_1: 0.9,
        beta_2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.1,
        gradient_scale: 0.5,
        time: 3,
    };
    let (buffers, copy) = adamw(buffers, gradient.clone(), &step, Some(setting.dtype))?;
    let sum = sum_of_squares(vec![gradient.clone(), gradient.narrow(0, 1, 120_000)])?;
    Ok(vec![
        ("parameter", bytes(buffers.parameter)),
        ("moment 1", bytes(buffers.moment_1)),
        ("moment 2", bytes(buffers.moment_2)),
        ("copy", bytes(copy.expect("asked for"))),
        ("sum of squares", bytes(sum.expect("there are buffers"))),
    ])
}
