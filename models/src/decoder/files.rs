//! Which tensors a decoder has in Hugging Face's files. Pure.

use super::config::{DecoderConfig, Positions};
use super::sizes::HeadSizes;
use super::table::{FileTable, StoredLayers};
use crate::huggingface::Parameter;
use crate::layers::{BlockConfig, BlockNames, HeadOrder, NormType};

/// Returns the parameters of a decoder that predicts each token's successor, in Hugging Face's order.
pub(super) fn stored_parameters(decoder: DecoderConfig, files: FileTable) -> impl Iterator<Item = Parameter> {
    let (d, names, vocab_size, norm_type) = (decoder.d_model(), decoder.names, decoder.vocab_size, decoder.block.norm);
    let norm = move |name: &str| norm_parameters(norm_type, name, d);
    let weight = |name: &str, rows| Parameter::same(format!("{name}.weight"), [rows, d]);
    let positions = match decoder.positions {
        Positions::Learned(count) => Some(weight(names.position_embedding, count)),
        Positions::Alibi | Positions::Rotary(_) => None,
    };
    let embeddings = [weight(names.token_embedding, vocab_size)].into_iter().chain(positions);
    let embeddings = embeddings.chain(names.embedding_norm.into_iter().flat_map(norm));
    let blocks = (0..decoder.n_layers).flat_map(move |layer| {
        let scope = format!("{}.{layer}", names.blocks);
        block_parameters(&decoder.block, &names.block, &files, &scope)
    });
    let of_model = embeddings.chain(blocks).chain(names.norm.into_iter().flat_map(norm));
    let head = (!decoder.tied_embeddings).then(|| Parameter::same(files.head, [vocab_size, d]));
    of_model
        .map(move |parameter| parameter.with_file_prefix(files.prefix))
        .chain(head)
}

fn norm_parameters(norm: NormType, name: &str, d_model: usize) -> Vec<Parameter> {
    match norm {
        NormType::LayerNorm => Parameter::layer_norm(name, d_model).into(),
        NormType::RmsNorm => vec![Parameter::same(format!("{name}.weight"), [d_model])],
    }
}

fn block_parameters(block: &BlockConfig, names: &BlockNames, files: &FileTable, scope: &str) -> Vec<Parameter> {
    let BlockConfig {
        attention, mlp, norm, ..
    } = block;
    let (d, hidden, heads) = (attention.d_model, mlp.d_hidden, HeadSizes::of(attention));
    let of_norm = |name: &str| norm_parameters(*norm, &format!("{scope}.{name}"), d);
    let in_attention = |part: &str| format!("{scope}.{}.{part}", names.attention);
    let in_mlp = |part: &str| format!("{scope}.{}.{part}", names.mlp);
    let linear = |name: String, shape: &[usize], has_bias: bool| {
        let both = match files.layers {
            StoredLayers::InputFirst => Parameter::input_first(&name, shape),
            StoredLayers::OutputFirst | StoredLayers::Apart { .. } => Parameter::linear(&name, shape),
        };
        both.into_iter().take(1 + usize::from(has_bias))
    };
    let (qkv, input) = (in_attention(names.attention_layers.qkv), in_mlp(names.mlp_layers.input));
    let (qkv, input): (Vec<_>, Vec<_>) = match files.layers {
        StoredLayers::Apart {
            qkv: files,
            mlp: halves,
        } => {
            let (queries, width) = (heads.n_heads / heads.n_kv_heads, heads.qkv_width());
            // Each group has its queries, its key and its value.
            let features = [heads.n_kv_heads, queries + 2, heads.d_head];
            let parts = |of: &str| {
                let ranges = [0..queries, queries..queries + 1, queries + 1..queries + 2];
                let named = files.into_iter().zip(ranges);
                let part = |(file, range)| (in_attention(&format!("{file}.{of}")), 1, range);
                named.map(part).collect::<Vec<_>>()
            };
            let weight = Parameter::linear_weight(format!("{qkv}.weight"), [d, 1, width], &features, parts("weight"));
            let bias = || Parameter::linear_bias(format!("{qkv}.bias"), [1, width], &features, parts("bias"));
            let halves = halves.map(|file| in_mlp(&format!("{file}.weight")));
            let input = Parameter::weights_side_by_side(format!("{input}.weight"), halves, [d, hidden]);
            let qkv = [weight].into_iter().chain(attention.qkv_bias.then(bias));
            (qkv.collect(), vec![input])
        }
        StoredLayers::InputFirst | StoredLayers::OutputFirst => {
            let shape = match attention.order {
                HeadOrder::Parts => [d, 3, heads.width()],
                HeadOrder::Groups => [d, 1, heads.qkv_width()],
            };
            let input_shape = [d, mlp.activation.num_inputs(), hidden];
            let (qkv, input) = (
                linear(qkv, &shape, attention.qkv_bias),
                linear(input, &input_shape, mlp.bias),
            );
            (qkv.collect(), input.collect())
        }
    };
    let norm_of = |of: &str| Parameter::same(in_attention(&format!("{of}_norm.weight")), [heads.d_head]);
    let qk_norms = attention.qk_norm_epsilon.map(|_| ["q", "k"].map(norm_of));
    let mut attention_norm = of_norm(names.attention_norm);
    let mut mlp_norm = of_norm(names.mlp_norm);
    if files.norms_first {
        attention_norm.append(&mut mlp_norm);
    }
    let output = linear(
        in_attention(names.attention_layers.output),
        &[heads.width(), d],
        attention.output_bias,
    );
    let back = linear(in_mlp(names.mlp_layers.output), &[hidden, d], mlp.bias);
    let in_attention = qkv.into_iter().chain(qk_norms.into_iter().flatten()).chain(output);
    let in_mlp = input.into_iter().chain(back);
    attention_norm
        .into_iter()
        .chain(in_attention)
        .chain(mlp_norm)
        .chain(in_mlp)
        .collect()
}
