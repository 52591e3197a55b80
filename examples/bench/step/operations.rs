//! Our step by operation: each measured by itself, forward and backward, and multiplied by how often a step runs it.
//!
//! The step's phases are measured where they happen: forward, backward, reduction (buckets and the gradient's norm) and
//! the optimizer. What the operations leave of forward and backward is the graph, what goes into buckets, and what
//! operations cost each other in the cache.

use std::time::Instant;

use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::bias_gelu::bias_gelu;
use cubecl_kernels::cross_entropy::cross_entropy;
use cubecl_kernels::flash_attention::{AttentionMask, AttentionOptions, PackedHeads, flash_attention_packed};
use cubecl_kernels::linear::{linear, linear_transposed};
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, layer_norm};
use cubecl_kernels::tape::record;
use examples::figures::median;

use super::{Problem, ours};
use crate::table::{Row, table};

/// Measurements of each operation.
const REPETITIONS: usize = 15;

type Forward<'a> = dyn Fn() -> Tensor<2> + 'a;

/// Prints the table.
pub fn measure(problem: &Problem) -> anyhow::Result<()> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(problem.threads)
        .build_global()?;
    let step = ours::steps(problem)?.swap_remove(0);
    let mut rows = Vec::new();
    let mut sum = 0.0;
    for_each_operation(problem, &mut |name, per_step, forward| {
        let [forward, backward] = seconds(forward);
        let in_step = per_step as f64 * (forward + backward);
        sum += in_step;
        let row = Row::default().text("operation", name).number("times", per_step as f64);
        let row = row.seconds("forward", forward).seconds("backward", backward);
        rows.push(row.seconds("in a step", in_step));
    });
    let mut add = |name: &str, seconds| rows.push(Row::default().text("operation", name).seconds("in a step", seconds));
    add("all of these", sum);
    for phase in ours::PHASES {
        add(&format!("the step's {}", phase.name()), step.value(phase.name()));
    }
    add("the step", step.value("step"));
    println!("{}", table(&rows));
    Ok(())
}

/// Returns the medians of forward and backward pass.
fn seconds(forward: &Forward<'_>) -> [f64; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        let output = forward();
        times[0].push(start.elapsed().as_secs_f64());
        let gradient = random(output.dims()).inner();
        let nothing = Tensor::<1>::zeros([1], &Device::flex());
        let root = record(output, nothing, move |_, _| Some(gradient));
        let start = Instant::now();
        drop(root.backward());
        times[1].push(start.elapsed().as_secs_f64());
    }
    times.map(median)
}

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Device::flex().autodiff())
}

fn leaf<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    random(shape).require_grad()
}

/// Runs `measure` on the name of each operation, how often a step runs it, and its forward pass, which needs nothing.
fn for_each_operation(problem: &Problem, measure: &mut dyn FnMut(&str, usize, &Forward<'_>)) {
    let sizes = &problem.sizes;
    let tokens = problem.micro_batch_size * sizes.seq_length;
    let (d_model, layers, vocab) = (sizes.hidden_size, sizes.num_layers, sizes.vocab_size);
    let [hidden, wide] = [[tokens, d_model], [tokens, 4 * d_model]];
    for (name, per_step, [d_input, d_output]) in [
        ("linear qkv", layers, [d_model, 3 * d_model]),
        ("linear projection", layers, [d_model, d_model]),
        ("linear up", layers, [d_model, 4 * d_model]),
        ("linear down", layers, [4 * d_model, d_model]),
    ] {
        let (input, weight) = (leaf([tokens, d_input]), leaf([d_input, d_output]));
        measure(name, per_step, &|| {
            linear(input.clone(), weight.clone(), None).expect("the shapes fit")
        });
    }
    let (input, weight) = (leaf(hidden), leaf([vocab, d_model]));
    measure("output head", 1, &|| {
        linear_transposed(input.clone(), weight.clone()).expect("the shapes fit")
    });
    let heads = PackedHeads {
        queries: sizes.num_attention_heads,
        keys: sizes.num_attention_heads,
    };
    let d_head = d_model / heads.queries;
    let packed = leaf([problem.micro_batch_size, sizes.seq_length, heads.total(), d_head]);
    measure("attention", layers, &|| {
        let options = AttentionOptions {
            mask: AttentionMask::Causal,
            scale: 1.0 / (d_head as f64).sqrt(),
            dropout: None,
            documents: None,
            key_lengths: None,
            is_deterministic: false,
        };
        let output = flash_attention_packed(packed.clone(), heads, options).expect("the shapes fit");
        output.reshape(hidden)
    });
    let (input, weight, bias) = (leaf(hidden), leaf([d_model]), leaf([d_model]));
    measure("layer norm", layers + 1, &|| {
        layer_norm(input.clone(), weight.clone(), Some(bias.clone()), 1e-5).expect("the shapes fit")
    });
    let addends = || Addends {
        input: leaf(hidden),
        bias: Some(leaf([d_model])),
        residual: leaf(hidden),
        dropout: None,
    };
    let (sum, weight, bias) = (addends(), leaf([d_model]), leaf([d_model]));
    measure("sum and layer norm", layers, &|| {
        let parameters = NormParameters {
            kind: NormKind::Layer,
            weight: weight.clone(),
            bias: Some(bias.clone()),
            epsilon: 1e-5,
        };
        let [hidden, normal] = add_norm(sum.clone(), parameters).expect("the shapes fit");
        drop(hidden);
        normal
    });
    let sum = addends();
    measure("sum", layers, &|| {
        bias_dropout_add(sum.clone()).expect("the shapes fit")
    });
    let (input, bias) = (leaf(wide), leaf([4 * d_model]));
    measure("bias and GELU", layers, &|| {
        bias_gelu(input.clone(), bias.clone()).expect("the shapes fit")
    });
    let (logits, targets) = (leaf([tokens, vocab]), targets(tokens, vocab));
    measure("cross-entropy", 1, &|| {
        let losses = cross_entropy(logits.clone(), targets.clone(), vocab, |own| own).expect("the shapes fit");
        losses.unsqueeze_dim(1)
    });
    let (table, ids) = (leaf([vocab, d_model]), self::targets(tokens, vocab));
    measure("embedding", 1, &|| table.clone().select(0, ids.clone()));
}

fn targets(tokens: usize, vocab: usize) -> Tensor<1, Int> {
    let ids: Vec<i64> = (0..tokens).map(|token| (token * 7919 % vocab) as i64).collect();
    Tensor::from_data(TensorData::new(ids, [tokens]), &Device::flex())
}
