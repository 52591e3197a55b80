//! [`AdapterSite`]: a linear layer that may have an adapter, and where the adapter's numbers are. Pure.

use burn_megatron::tensor_parallel::AdaptedFeatures;
use burn_megatron::training::MODEL as MODEL_ARRAYS;

use crate::huggingface::linear_part::LinearPart;
use crate::huggingface::{HuggingFaceFormat, Parameter, StoredTensor};

/// The end of the names of weights.
const WEIGHT: &str = ".weight";

/// A linear layer of a block as Hugging Face's files have it, with the numbers of an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterSite {
    /// The layer of this model that it is, or is a part of: the scope of its parameters.
    pub layer: String,
    /// The layer in files, with their prefix: `model.layers.0.self_attn.q_proj`.
    pub module: String,
    /// The name of the adapter's parameters here, before `.lora_A.weight`.
    pub name: String,
    /// The size of the layer's input.
    pub d_input: usize,
    /// The sizes of its output features, as the adapter's second factor counts them.
    pub features: Vec<usize>,
    /// Which of the layer's features here they are; `None` if they are all.
    pub of_layer: Option<AdaptedFeatures>,
    /// True if files have the weight as `[d_input, features]`.
    pub is_input_first: bool,
    /// Which features of the parameter they are; `None` if they are all, in its order.
    part: Option<LinearPart>,
}

/// One of an adapter's two factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdapterFactor {
    /// `[d_input, rank]` here, and `[rank, d_input]` in files.
    A,
    /// `[rank, features...]` here, and `[features, rank]` in files.
    B,
}

impl AdapterFactor {
    pub const BOTH: [Self; 2] = [Self::A, Self::B];

    /// The end of its name, here and in files.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::A => ".lora_A.weight",
            Self::B => ".lora_B.weight",
        }
    }
}

/// Returns the factors of all these sites.
pub fn factors(sites: &[AdapterSite]) -> impl Iterator<Item = (&AdapterSite, AdapterFactor)> {
    let of_site = |site| AdapterFactor::BOTH.map(|factor| (site, factor));
    sites.iter().flat_map(of_site)
}

impl AdapterSite {
    fn new(parameter: &Parameter, tensor: &StoredTensor) -> Option<Self> {
        let layer = parameter.name.strip_suffix(WEIGHT)?.to_owned();
        let name = tensor.key.strip_suffix(WEIGHT)?.to_owned();
        let module = tensor.file_name.strip_suffix(WEIGHT)?.to_owned();
        let is_of_block = module
            .split('.')
            .any(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        let (&d_input, outer) = parameter.logical_shape.split_first()?;
        if !is_of_block || outer.is_empty() {
            return None;
        }
        let (features, of_layer) = match &tensor.part {
            Some(part) => {
                let (groups, of_group) = part.in_groups();
                let num_features = groups * of_group.len();
                let is_all = num_features == outer.iter().product::<usize>();
                let of_layer = AdaptedFeatures {
                    name: name.clone(),
                    groups,
                    features: of_group,
                };
                (vec![num_features], (!is_all).then_some(of_layer))
            }
            None => (outer.iter().copied().filter(|&size| size > 1).collect(), None),
        };
        Some(Self {
            layer,
            module,
            name,
            d_input,
            features,
            of_layer,
            is_input_first: tensor.part.is_none(),
            part: tensor.part.clone(),
        })
    }

    /// Returns whether `target` is its name in files, or the last parts of it.
    pub fn is_called(&self, target: &str) -> bool {
        let before = self.module.strip_suffix(target);
        !target.is_empty() && before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    }

    /// The last part of its name.
    pub fn last_name(&self) -> &str {
        self.module.rsplit('.').next().unwrap_or(&self.module)
    }

    /// The last part of its name, the last two, and so on, the whole of it in the end.
    pub(super) fn last_names(&self) -> impl Iterator<Item = &str> {
        let starts = self.module.rmatch_indices('.').map(|(index, _)| index + 1);
        starts.chain([0]).map(|start| &self.module[start..])
    }

    /// Returns whether it is a projection of an attention.
    pub(super) fn is_of_attention(&self) -> bool {
        let outer = self.module.rsplit('.').skip(1).map(str::to_lowercase);
        outer
            .into_iter()
            .any(|of| of.contains("attn") || of.contains("attention"))
    }

    /// The numbers of its features among the columns of the parameter, in the order of files.
    pub(super) fn columns(&self) -> Vec<usize> {
        match &self.part {
            Some(part) => part.columns().collect(),
            None => (0..self.num_features()).collect(),
        }
    }

    /// The name of a factor's array in a checkpoint.
    pub fn array_name(&self, factor: AdapterFactor) -> String {
        format!("{MODEL_ARRAYS}{}{}", self.name, factor.suffix())
    }

    /// The name of a factor in peft's files.
    pub fn file_name(&self, factor: AdapterFactor) -> String {
        format!("base_model.model.{}{}", self.module, factor.suffix())
    }

    pub fn num_features(&self) -> usize {
        self.features.iter().product()
    }

    /// The logical shape of a factor of this rank here.
    pub fn logical_shape(&self, factor: AdapterFactor, rank: usize) -> Vec<usize> {
        match factor {
            AdapterFactor::A => vec![self.d_input, rank],
            AdapterFactor::B => [&[rank], self.features.as_slice()].concat(),
        }
    }

    /// The shape of a factor in peft's files.
    pub fn file_shape(&self, factor: AdapterFactor, rank: usize) -> [usize; 2] {
        match factor {
            AdapterFactor::A => [rank, self.d_input],
            AdapterFactor::B => [self.num_features(), rank],
        }
    }
}

/// Returns the linear layers of a model's blocks as Hugging Face's files have them, in their order.
pub fn linear_layers<C: HuggingFaceFormat>(model: &C) -> Vec<AdapterSite> {
    let parameters = model.parameters().filter(|parameter| parameter.is_linear_weight);
    parameters
        .flat_map(|parameter| {
            let tensors = parameter.tensors.iter();
            tensors
                .filter_map(|tensor| AdapterSite::new(&parameter, tensor))
                .collect::<Vec<_>>()
        })
        .collect()
}
