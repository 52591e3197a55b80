//! Which tensors a GPT has, by name and shape, here and in Hugging Face's files. Pure.

use crate::gpt::GptConfig;

const PREFIX: &str = "transformer.";
const HEAD: &str = "lm_head.weight";
pub(super) const EMBEDDING: &str = "wte.weight";

/// A parameter of a GPT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    /// Its name in the model; Hugging Face's has a prefix at most.
    pub name: String,
    /// Its logical shape in a checkpoint. Where matrices lie side by side, the dimension before the last counts them,
    /// even if it is one: `[d_model, 3, d_model]`, `[d_model, 1, d_hidden]`.
    pub logical_shape: Vec<usize>,
}

impl Parameter {
    fn new(name: impl Into<String>, logical_shape: impl Into<Vec<usize>>) -> Self {
        Self {
            name: name.into(),
            logical_shape: logical_shape.into(),
        }
    }

    /// Its shape in Hugging Face's files, where fused matrices are the columns of one. The elements are in the same
    /// order.
    pub fn file_shape(&self) -> Vec<usize> {
        let is_fused = [".c_attn.", ".c_fc."].iter().any(|layer| self.name.contains(layer));
        match (is_fused, self.logical_shape.as_slice()) {
            (true, [rows @ .., fused, width]) => rows.iter().copied().chain([fused * width]).collect(),
            _ => self.logical_shape.clone(),
        }
    }

    /// The number of elements.
    pub fn num_elements(&self) -> usize {
        self.logical_shape.iter().product()
    }
}

/// Returns the parameters of a model, in Hugging Face's order.
pub(super) fn parameters(config: &GptConfig) -> impl Iterator<Item = Parameter> {
    let (d, hidden) = (config.d_model, config.hidden_size());
    let embeddings = [
        Parameter::new(EMBEDDING, [config.vocab_size, d]),
        Parameter::new("wpe.weight", [config.max_seq_length, d]),
    ];
    let blocks = (0..config.n_layers).flat_map(move |layer| {
        let of_block = |name: &str, shape: &[usize]| Parameter::new(format!("h.{layer}.{name}"), shape);
        [
            of_block("ln_1.weight", &[d]),
            of_block("ln_1.bias", &[d]),
            of_block("attn.c_attn.weight", &[d, 3, d]),
            of_block("attn.c_attn.bias", &[3, d]),
            of_block("attn.c_proj.weight", &[d, d]),
            of_block("attn.c_proj.bias", &[d]),
            of_block("ln_2.weight", &[d]),
            of_block("ln_2.bias", &[d]),
            of_block("mlp.c_fc.weight", &[d, 1, hidden]),
            of_block("mlp.c_fc.bias", &[1, hidden]),
            of_block("mlp.c_proj.weight", &[hidden, d]),
            of_block("mlp.c_proj.bias", &[d]),
        ]
    });
    let norm = [Parameter::new("ln_f.weight", [d]), Parameter::new("ln_f.bias", [d])];
    let has_head = !config.tied_embeddings;
    let head = has_head.then(|| head(config));
    embeddings.into_iter().chain(blocks).chain(norm).chain(head)
}

/// Returns the head of a model whose embeddings are not tied.
pub(super) fn head(config: &GptConfig) -> Parameter {
    Parameter::new(HEAD, [config.vocab_size, config.d_model])
}

/// Returns the name that a parameter gets in an exported file: that of `GPT2LMHeadModel`.
pub(super) fn exported_name(name: &str) -> String {
    match name {
        HEAD => name.to_owned(),
        _ => format!("{PREFIX}{name}"),
    }
}

/// Returns the parameter's name that a tensor of a file stands for; none where it is a mask, which older versions of
/// transformers stored.
pub(super) fn imported_name(tensor: &str) -> Option<&str> {
    let name = tensor.strip_prefix(PREFIX).unwrap_or(tensor);
    let of_block = name.strip_prefix("h.").and_then(|rest| rest.split_once('.'));
    match of_block {
        Some((layer, "attn.bias" | "attn.masked_bias")) if layer.bytes().all(|byte| byte.is_ascii_digit()) => None,
        _ => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};
    use burn_megatron::context::ParallelContext;
    use burn_megatron::parameters::list_parameters;

    use super::*;

    #[test]
    fn parameters_are_those_that_the_model_declares() {
        for is_tied in [true, false] {
            let config = GptConfig::new(2, 20, 4, 15, 61)
                .with_d_hidden(Some(36))
                .with_tied_embeddings(is_tied);
            let context = ParallelContext::single(1);
            let model = config.init::<Flex>(&FlexDevice, &context).unwrap();
            let mut declared: Vec<Parameter> = list_parameters::<Flex, _>(&model)
                .iter()
                .map(|entry| {
                    let declaration = context.registry().declaration(entry.id).unwrap();
                    Parameter::new(declaration.name, declaration.placement.logical_shape())
                })
                .collect();
            let mut listed: Vec<Parameter> = parameters(&config).collect();
            declared.sort_by(|left, right| left.name.cmp(&right.name));
            listed.sort_by(|left, right| left.name.cmp(&right.name));
            assert_eq!(listed, declared);
        }
    }

    #[test]
    fn parameters_are_those_that_the_configuration_counts() {
        for is_tied in [true, false] {
            let config = GptConfig::new(3, 20, 4, 15, 61)
                .with_d_hidden(Some(36))
                .with_tied_embeddings(is_tied);
            let count: usize = parameters(&config).map(|parameter| parameter.num_elements()).sum();
            assert_eq!(count, config.num_parameters());
            let has_head = parameters(&config).any(|parameter| parameter.name == "lm_head.weight");
            assert_eq!(has_head, !is_tied);
        }
    }

    #[test]
    fn queries_keys_and_values_are_columns_in_files() {
        let config = GptConfig::new(1, 20, 4, 15, 61);
        let shape = |name: &str| {
            let parameter = parameters(&config).find(|parameter| parameter.name == name).unwrap();
            (parameter.logical_shape.clone(), parameter.file_shape())
        };
        assert_eq!(shape("h.0.attn.c_attn.weight"), (vec![20, 3, 20], vec![20, 60]));
        assert_eq!(shape("h.0.attn.c_attn.bias"), (vec![3, 20], vec![60]));
        assert_eq!(shape("h.0.mlp.c_fc.weight"), (vec![20, 1, 80], vec![20, 80]));
    }

    #[test]
    fn names_are_found_back_with_and_without_prefix() {
        let config = GptConfig::new(2, 20, 4, 15, 61).with_tied_embeddings(false);
        for Parameter { name, .. } in parameters(&config) {
            assert_eq!(imported_name(&name), Some(name.as_str()));
            assert_eq!(imported_name(&exported_name(&name)), Some(name.as_str()));
        }
        assert_eq!(exported_name("h.1.ln_1.bias"), "transformer.h.1.ln_1.bias");
        assert_eq!(exported_name("lm_head.weight"), "lm_head.weight");
    }

    #[test]
    fn masks_are_no_parameters_and_all_else_is() {
        for mask in ["h.0.attn.bias", "transformer.h.11.attn.masked_bias"] {
            assert_eq!(imported_name(mask), None, "{mask}");
        }
        for name in ["h.x.attn.bias", "h.0.attn.c_attn.bias", "attn.bias", "h.0.mlp.bias"] {
            assert_eq!(imported_name(name), Some(name));
        }
    }
}
