//! [`choices`]: what a plan may do with each layer of a model, by the types and names of its modules.

use std::collections::HashSet;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::Tensor;

use crate::sharded::placement::{AxisRole, MeshShape};
use crate::sharded::plan::{Plan, PlannedParameter};

/// Lines of a plan for a part of a model, which they cut in one of several ways; the part may also be left whole.
pub(super) type Choice = Vec<Plan>;

/// Returns what may be cut on a mesh, in the order of the model: layers that repeat are one choice. Of burn's
/// attention, feed-forward layers and recurrent layers all parts are cut together; two linear layers that follow each
/// other in a module, the second one as wide as the first one's output, by columns and rows; any other by one of these.
/// What the ranks do not divide is left out.
pub(super) fn choices<M: Module>(model: &M, mesh: &MeshShape) -> Vec<Choice> {
    let mut tree = Tree::default();
    model.visit(&mut tree);
    let mut plans = Vec::new();
    let several = |role: AxisRole| mesh.axes_of(role).any(|axis| mesh.size(axis) > 1);
    if several(AxisRole::Tensor) {
        plans.extend(tree.tensor_parallel());
    }
    if several(AxisRole::Data) {
        plans.push(vec![Plan::new().fully_shard(AxisRole::Data)]);
    }
    for alternatives in &mut plans {
        alternatives.retain(|plan| plan.resolve(&tree.parameters, mesh).is_ok());
    }
    plans.retain(|alternatives| !alternatives.is_empty());
    plans
}

/// The modules and parameters of a model.
#[derive(Default)]
struct Tree {
    path: Vec<String>,
    modules: Vec<TreeModule>,
    parameters: Vec<PlannedParameter>,
}

struct TreeModule {
    path: Vec<String>,
    /// `Struct:Linear`
    kind: String,
}

impl ModuleVisitor for Tree {
    fn enter_module(&mut self, name: &str, container_type: &str) {
        if self.modules.iter().all(|module| module.path != self.path) {
            self.modules.push(TreeModule {
                path: self.path.clone(),
                kind: container_type.to_owned(),
            });
        }
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.parameters.push(PlannedParameter {
            name: self.path.join("."),
            shape: param.shape().to_vec(),
            // Its lines are made for the layers that they name.
            layer: String::new(),
        });
    }
}

/// A linear layer that belongs to no layer of burn's.
struct Layer {
    pattern: String,
    parent: String,
    input: usize,
    output: usize,
}

impl Tree {
    /// The alternatives of each layer, or pair of layers, on tensor-parallel ranks.
    fn tensor_parallel(&self) -> Vec<Choice> {
        let mut plans = Vec::new();
        let mut linear: Vec<Layer> = Vec::new();
        let mut seen = HashSet::new();
        let mut cut_together: Vec<String> = Vec::new();
        for module in self.modules.iter().filter(|module| !module.path.is_empty()) {
            let pattern = pattern(&module.path);
            let is_part = cut_together
                .iter()
                .any(|whole| pattern.starts_with(&format!("{whole}.")));
            if is_part || !seen.insert(pattern.clone()) {
                continue;
            }
            let (plan, has_parts) = match module.kind.as_str() {
                "Struct:MultiHeadAttention" => (Plan::new().attention(&pattern), true),
                "Struct:PositionWiseFeedForward" => (Plan::new().feed_forward(&pattern), true),
                "Struct:Lstm" | "Struct:Gru" => (Plan::new().column(&format!("{pattern}.*.*_transform")), true),
                "Struct:Embedding" => (Plan::new().vocabulary(&pattern), false),
                "Struct:Conv1d" | "Struct:Conv2d" | "Struct:Conv3d" => (Plan::new().channels(&pattern), false),
                "Struct:Linear" => {
                    linear.extend(self.linear(&module.path, pattern));
                    continue;
                }
                _ => continue,
            };
            plans.push(vec![plan]);
            if has_parts {
                cut_together.push(pattern);
            }
        }
        let mut rest = linear.into_iter().peekable();
        while let Some(first) = rest.next() {
            let follows = |next: &Layer| next.parent == first.parent && next.input == first.output;
            plans.push(match rest.next_if(follows) {
                Some(second) => vec![Plan::new().column(&first.pattern).row(&second.pattern)],
                None => vec![Plan::new().column(&first.pattern), Plan::new().row(&first.pattern)],
            });
        }
        plans
    }

    fn linear(&self, path: &[String], pattern: String) -> Option<Layer> {
        let name = format!("{}.weight", path.join("."));
        let weight = self.parameters.iter().find(|parameter| parameter.name == name)?;
        let &[input, output] = weight.shape.as_slice() else {
            return None;
        };
        Some(Layer {
            pattern,
            parent: path[..path.len() - 1].join("."),
            input,
            output,
        })
    }
}

/// The path with `*` for numbers: the layers of a list are cut alike.
fn pattern(path: &[String]) -> String {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = path
        .iter()
        .map(|part| if is_number(part) { "*" } else { part })
        .collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn::nn::transformer::{
        TransformerDecoder, TransformerDecoderConfig, TransformerEncoder, TransformerEncoderConfig,
    };
    use burn::nn::{BiLstm, BiLstmConfig, Embedding, EmbeddingConfig, Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;

    #[derive(Module, Debug)]
    struct Mlp {
        inner: Linear,
        outer: Linear,
        last: Linear,
    }

    #[derive(Module, Debug)]
    struct Model {
        embedding: Embedding,
        encoder: TransformerEncoder,
        decoder: TransformerDecoder,
        lstm: BiLstm,
        convolution: Conv2d,
        layers: Vec<Mlp>,
        odd: Linear,
    }

    fn lines(mesh: &MeshShape) -> Vec<Vec<String>> {
        let device = &Device::flex();
        let linear = |input, output| LinearConfig::new(input, output).init(device);
        let mlp = || Mlp {
            inner: linear(8, 16),
            outer: linear(16, 8),
            last: linear(8, 3),
        };
        let model = Model {
            embedding: EmbeddingConfig::new(10, 8).init(device),
            encoder: TransformerEncoderConfig::new(8, 16, 2, 2).init(device),
            decoder: TransformerDecoderConfig::new(8, 16, 2, 2).init(device),
            lstm: BiLstmConfig::new(8, 8, true).init(device),
            convolution: Conv2dConfig::new([1, 6], [3, 3]).init(device),
            layers: vec![mlp(), mlp()],
            odd: linear(7, 5),
        };
        let text = |plan: &Plan| plan.to_string().trim_end().replace('\n', " ");
        choices(&model, mesh)
            .iter()
            .map(|choice| choice.iter().map(text).collect())
            .collect()
    }

    #[test]
    fn burns_layers_are_cut_as_their_lines_say_and_what_ranks_do_not_divide_is_left_out() {
        let mesh = MeshShape::new([(AxisRole::Data, 3), (AxisRole::Tensor, 2)]);
        let attention = |path: &str| vec![format!("column(\"{path}.{{query,key,value}}\") row(\"{path}.output\")")];
        let feed_forward = |path: &str| vec![format!("column(\"{path}.linear_inner\") row(\"{path}.linear_outer\")")];
        let one = |line: &str| vec![line.to_owned()];
        let mut expected = vec![
            one("vocabulary(\"embedding\")"),
            attention("encoder.layers.*.mha"),
            feed_forward("encoder.layers.*.pwff"),
            attention("decoder.layers.*.cross_attn"),
            attention("decoder.layers.*.self_attn"),
            feed_forward("decoder.layers.*.pwff"),
            one("column(\"lstm.forward.*.*_transform\")"),
            one("column(\"lstm.reverse.*.*_transform\")"),
            one("channels(\"convolution\")"),
            one("column(\"layers.*.inner\") row(\"layers.*.outer\")"),
            // Three columns: rows alone.
            one("row(\"layers.*.last\")"),
            one("fully_shard(Data)"),
        ];
        let mut found = lines(&mesh);
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    }

    #[test]
    fn axes_of_one_rank_leave_no_choice() {
        let mesh = MeshShape::new([(AxisRole::Data, 1), (AxisRole::Tensor, 1)]);
        assert!(lines(&mesh).is_empty());
    }
}
