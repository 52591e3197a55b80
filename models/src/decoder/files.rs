//! Which tensors a decoder has in Hugging Face's files. Pure.

use super::config::{DecoderConfig, Positions};
use super::sizes::HeadSizes;
use super::table::{FileTable, StoredLayers};
use crate::huggingface::Parameter;
use crate::layers::{BlockConfig, BlockNames, HeadOrder, NormType};

/// Returns the parameters of a decoder, in Hugging Face's order.
pub(super) fn stored_parameters(decoder: DecoderConfig, files: FileTable) -> impl Iterator<Item = Parameter> {
    let (d, names, vocab_size, norm_type) = (decoder.d_model(), decoder.names, decoder.vocab_size, decoder.block.norm);
    let norm = move |name: &str| norm_parameters(norm_type, name, d);
    let weight = |name: &str, rows| Parameter::same(format!("{name}.weight"), [rows, d]);
    let positions = match decoder.positions {
        Positions::Learned(count) => Some(weight(names.position_embedding, count)),
        Positions::Alibi | Positions::Rotary(_) => None,
    };
    let masked = decoder.masked;
    let types = masked.map(|masked| weight(masked.names.token_types, masked.token_types));
    let embeddings = [weight(names.token_embedding, vocab_size)].into_iter().chain(positions);
    let embeddings = embeddings
        .chain(types)
        .chain(names.embedding_norm.into_iter().flat_map(norm));
    let blocks = (0..decoder.n_layers).flat_map(move |layer| {
        let scope = format!("{}.{layer}", names.blocks);
        block_parameters(&decoder.block, &names.block, &files, &scope)
    });
    let pairs = masked.filter(|masked| masked.tells_pairs).map(|masked| masked.names);
    let pooler = pairs.map(|names| Parameter::linear(names.pooler, &[d, d]));
    let of_model = embeddings.chain(blocks).chain(names.norm.into_iter().flat_map(norm));
    let before_head = masked.into_iter().flat_map(move |masked| {
        let bias = Parameter::same(format!("{}.bias", masked.names.head), [vocab_size]);
        let bias = if decoder.tied_embeddings {
            bias
        } else {
            bias.written_twice(format!("{}.bias", names.head))
        };
        let transform = Parameter::linear(masked.names.transform, &[d, d]);
        [bias]
            .into_iter()
            .chain(transform)
            .chain(norm(masked.names.transform_norm))
    });
    let head = (!decoder.tied_embeddings).then(|| Parameter::same(files.head, [vocab_size, d]));
    let pairs = pairs.map(|names| Parameter::linear(names.pairs, &[d, 2]));
    of_model
        .chain(pooler.into_iter().flatten())
        .map(move |parameter| parameter.with_file_prefix(files.prefix))
        .chain(before_head)
        .chain(head)
        .chain(pairs.into_iter().flatten())
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
    let linear_of_mlp = |part: &str, shape: &[usize]| {
        let here = in_mlp(part);
        let there = if files.mlp_in_block {
            format!("{scope}.{part}")
        } else {
            here.clone()
        };
        linear(there.clone(), shape, mlp.bias).map(move |parameter| {
            let name = parameter.name.replacen(&there, &here, 1);
            parameter.renamed(name)
        })
    };
    let qkv = in_attention(names.attention_layers.qkv);
    let (matrices, features) = match attention.order {
        HeadOrder::Parts => ([3, heads.width()], vec![3, heads.width()]),
        // Each group has its queries, its key and its value.
        HeadOrder::Groups => (
            [1, heads.qkv_width()],
            vec![heads.n_kv_heads, heads.n_heads / heads.n_kv_heads + 2, heads.d_head],
        ),
    };
    let shape = [d, matrices[0], matrices[1]];
    let (qkv, halves): (Vec<_>, _) = match files.layers {
        StoredLayers::Apart { qkv: files, mlp } => {
            let (cut, last) = (features.len() - 2, features[features.len() - 2]);
            let parts = |of: &str| {
                let ranges = [0..last - 2, last - 2..last - 1, last - 1..last];
                let named = files.into_iter().zip(ranges);
                let part = |(file, range)| (in_attention(&format!("{file}.{of}")), cut, range);
                named.map(part).collect::<Vec<_>>()
            };
            let weight = Parameter::linear_weight(format!("{qkv}.weight"), shape, &features, parts("weight"));
            let bias = || Parameter::linear_bias(format!("{qkv}.bias"), matrices, &features, parts("bias"));
            let qkv = [weight].into_iter().chain(attention.qkv_bias.then(bias));
            (qkv.collect(), mlp)
        }
        StoredLayers::InputFirst | StoredLayers::OutputFirst => {
            (linear(qkv, &shape, attention.qkv_bias).collect(), None)
        }
    };
    let input: Vec<Parameter> = match halves {
        Some(halves) => {
            let files = halves.map(|file| in_mlp(&format!("{file}.weight")));
            let name = format!("{}.weight", in_mlp(names.mlp_layers.input));
            vec![Parameter::weights_side_by_side(name, files, [d, hidden])]
        }
        None => linear_of_mlp(names.mlp_layers.input, &[d, mlp.activation.num_inputs(), hidden]).collect(),
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
    let back = linear_of_mlp(names.mlp_layers.output, &[hidden, d]);
    let in_attention = qkv.into_iter().chain(qk_norms.into_iter().flatten()).chain(output);
    let in_mlp = input.into_iter().chain(back);
    attention_norm
        .into_iter()
        .chain(in_attention)
        .chain(mlp_norm)
        .chain(in_mlp)
        .collect()
}
