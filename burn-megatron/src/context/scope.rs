//! [`ParameterScope`]: where the layers of a module make and declare their parameters.

use burn::module::{Module, Param, ParamId, list_param_ids};
use burn::tensor::{Device, Tensor};

use super::ParallelContext;
use crate::parameters::{
    Declaration, Distribution, FirstValues, ParameterEntry, ParameterInit, Placement, RegistryError, ShardIdentity,
    initialize, list_parameters, refuse_undrawn, tensor_from_host,
};
use crate::topology::TopologyError;

/// A module's name and the ranks around it: it goes in front of the global names of the module's parameters.
///
/// A function that makes layers takes a scope. The ranks are those of its [`context`](Self::context).
#[derive(Clone, Debug)]
pub struct ParameterScope {
    context: ParallelContext,
    name: String,
}

/// How a parameter made by [`ParameterScope::parameter`] is distributed over the ranks, and how it is initialised.
#[derive(Clone, Debug)]
pub struct ParameterSpec {
    /// Which part of it is here.
    pub placement: Placement,
    /// Who else holds it, and what its local gradient is.
    pub distribution: Distribution,
    /// How it starts.
    pub init: ParameterInit,
}

impl ParameterScope {
    pub(super) fn new(context: ParallelContext, name: String) -> Self {
        Self { context, name }
    }

    /// Returns the scope of a part called `name`.
    pub fn scope(&self, name: impl AsRef<str>) -> Self {
        Self::new(self.context.clone(), self.global_name(name.as_ref()))
    }

    /// The name of the module, as [`scope`](Self::scope) has built it; empty for the whole model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The ranks around the module, without its name.
    pub fn context(&self) -> &ParallelContext {
        &self.context
    }

    /// Declares every parameter of a module that has no declaration yet as replicated, by its module path: the layers
    /// around converted modules, which see every token on every tensor rank.
    ///
    /// A layer of its own between two sequence-parallel ones is declared by
    /// [`declare_token_wise`](Self::declare_token_wise) before this call. Parameters without values are drawn first, in
    /// the order of the module.
    ///
    /// # Errors
    /// [`RegistryError::Undrawn`] when a parameter has no values and others have been converted, or this is a pipeline
    /// stage: it would not get those of the whole model.
    pub fn declare_rest_replicated<M: Module>(&self, module: &M) -> Result<(), RegistryError> {
        for entry in self.draw_whole(module)? {
            if self.context.registry().declaration(entry.id).is_none() {
                let name = self.context.registry().reserve_name(&self.global_name(&entry.path));
                let placement = Placement::whole(entry.shape);
                self.declare(entry.id, name, placement, Distribution::Replicated);
            }
        }
        Ok(())
    }

    /// Returns a whole model's parameters, and draws those that have no values, in the order of the module.
    ///
    /// # Errors
    /// [`RegistryError::Undrawn`] when a parameter has no values though the module is only a part of a model (there are
    /// several pipeline stages), or parts of it have been converted.
    pub(crate) fn draw_whole<M: Module>(&self, module: &M) -> Result<Vec<ParameterEntry>, RegistryError> {
        let is_part = self.context.grid().pipeline_parallel_size() > 1;
        if is_part
            || list_param_ids(module)
                .into_iter()
                .any(|id| self.context.registry().is_converted(id))
        {
            refuse_undrawn(module, &self.name)?;
        }
        Ok(list_parameters(module))
    }

    /// Returns what a layer with shards keeps as a field of type [`ShardIdentity`], so that its record is loaded by the
    /// rank that saved it only. `shards` are its sharded parameters, by field name.
    pub fn shard_identity(&self, shards: &[(&str, &Placement)]) -> ShardIdentity {
        let layer = if self.name.is_empty() {
            "the module".to_owned()
        } else {
            self.name.clone()
        };
        let shards = shards
            .iter()
            .map(|&(name, placement)| (name.to_owned(), placement.clone()))
            .collect();
        let [tensor, pipeline] =
            [self.context.tensor_group(), self.context.pipeline_group()].map(|group| (group.rank(), group.size()));
        ShardIdentity::new(layer, tensor, pipeline, shards)
    }

    /// Checks that the tensor-parallel size divides `value`, a quantity of this module called `what`.
    ///
    /// # Errors
    /// [`TopologyError::Indivisible`], which names the layer, with the nearest values that would do.
    pub fn check_tensor_divides(&self, what: &str, value: usize) -> Result<(), TopologyError> {
        let what = if self.name.is_empty() {
            what.to_owned()
        } else {
            format!("{}: {what}", self.name)
        };
        self.context.config().check_tensor_divides(&what, value)
    }

    /// Returns the distribution of a parameter that every tensor rank holds and that sees this rank's tokens only.
    ///
    /// Under sequence parallelism its gradient is partial; otherwise every rank sees every token.
    pub fn token_wise_distribution(&self) -> Distribution {
        if self.context.is_sequence_parallel() {
            Distribution::PartialOverTensor
        } else {
            Distribution::Replicated
        }
    }

    /// Returns a new parameter, initialised by its global name, and declares it.
    ///
    /// # Shapes
    /// - output: `shape`, the local shape of `placement` with dimensions joined
    ///
    /// # Panics
    /// When the number of elements of `shape` is not that of the placement's local shape.
    pub fn parameter<const D: usize>(
        &self,
        name: &str,
        shape: [usize; D],
        spec: &ParameterSpec,
        device: &Device,
    ) -> Param<Tensor<D>> {
        let name = self.context.registry().reserve_name(&self.global_name(name));
        self.named_parameter(name, shape, spec, device)
    }

    /// Returns a new parameter that is another part of the one that `part` is a part of, under its name: where a rank's
    /// part is several boxes. Initialised as the whole is.
    ///
    /// # Panics
    /// When `part` has not been declared, or the number of elements of `shape` is not that of the placement's local
    /// shape.
    pub fn further_part<const D: usize>(
        &self,
        part: &Param<Tensor<D>>,
        shape: [usize; D],
        spec: &ParameterSpec,
        device: &Device,
    ) -> Param<Tensor<D>> {
        self.named_parameter(self.name_of(part), shape, spec, device)
    }

    fn named_parameter<const D: usize>(
        &self,
        name: String,
        shape: [usize; D],
        spec: &ParameterSpec,
        device: &Device,
    ) -> Param<Tensor<D>> {
        let first = FirstValues {
            name: name.clone(),
            seed: self.context.seed(),
            init: spec.init,
            placement: spec.placement.clone(),
        };
        let param = if self.context.has_lazy_parameters() {
            let id = ParamId::new();
            self.context.registry().start_later(id, first.clone());
            let draw = move |device: &Device, requires_grad: bool| {
                first_value(&first, shape, device).set_require_grad(requires_grad)
            };
            Param::uninitialized(id, draw, device.clone(), true, shape.into())
        } else {
            Param::from_tensor(first_value(&first, shape, device))
        };
        self.declare(param.id, name, spec.placement.clone(), spec.distribution);
        param
    }

    /// Returns a new layer with its values, unless parameters get theirs later.
    pub(crate) fn drawn<M: Module>(&self, layer: M) -> M {
        if self.context.has_lazy_parameters() {
            layer
        } else {
            initialize(layer)
        }
    }

    /// Declares the parameter of a layer that sees every token on every rank, such as a position embedding.
    pub fn declare_replicated<const D: usize>(&self, name: &str, param: &Param<Tensor<D>>) {
        self.declare_whole(name, param, Distribution::Replicated);
    }

    /// Declares the parameter of a layer that is applied to each token between parallel regions, such as a norm or the
    /// bias after a row-parallel matmul: under sequence parallelism it sees this rank's tokens only.
    pub fn declare_token_wise<const D: usize>(&self, name: &str, param: &Param<Tensor<D>>) {
        self.declare_whole(name, param, self.token_wise_distribution());
    }

    /// Declares the parameter of a layer that is applied to each head inside a tensor-parallel region, such as the norm
    /// of queries: every rank holds it, and sees all tokens of its own heads only, so that its gradient is a term of
    /// the sum over the tensor group, with sequence parallelism and without.
    pub fn declare_head_wise<const D: usize>(&self, name: &str, param: &Param<Tensor<D>>) {
        self.declare_whole(name, param, Distribution::PartialOverTensor);
    }

    /// Declares a parameter made elsewhere, such as a shard of an existing layer.
    pub fn declare_sharded<const D: usize>(&self, name: &str, param: &Param<Tensor<D>>, placement: Placement) {
        let name = self.context.registry().reserve_name(&self.global_name(name));
        self.declare(param.id, name, placement, Distribution::Sharded);
    }

    /// Declares a parameter made elsewhere as another part of the one that `part` is a part of: see
    /// [`further_part`](Self::further_part).
    ///
    /// # Panics
    /// When `part` has not been declared.
    pub fn declare_further_part<const D: usize>(
        &self,
        part: &Param<Tensor<D>>,
        param: &Param<Tensor<D>>,
        placement: Placement,
        distribution: Distribution,
    ) {
        self.declare(param.id, self.name_of(part), placement, distribution);
    }

    /// The global name that a parameter has declared.
    fn name_of<const D: usize>(&self, param: &Param<Tensor<D>>) -> String {
        let declaration = self.context.registry().declaration(param.id);
        declaration.expect("the first part has been declared").name
    }

    fn declare_whole<const D: usize>(&self, name: &str, param: &Param<Tensor<D>>, distribution: Distribution) {
        let name = self.context.registry().reserve_name(&self.global_name(name));
        let placement = Placement::whole(param.lazy_shape().to_vec());
        self.declare(param.id, name, placement, distribution);
    }

    fn declare(&self, id: ParamId, name: String, placement: Placement, distribution: Distribution) {
        self.context.registry().declare(
            id,
            Declaration {
                name,
                placement,
                distribution,
                is_tied: false,
                is_reused: false,
            },
        );
    }

    fn global_name(&self, name: &str) -> String {
        match (self.name.is_empty(), name.is_empty()) {
            (true, _) => name.to_owned(),
            (false, true) => self.name.clone(),
            (false, false) => format!("{}.{name}", self.name),
        }
    }
}

/// The value that a parameter starts with.
fn first_value<const D: usize>(first: &FirstValues, shape: [usize; D], device: &Device) -> Tensor<D> {
    let dtype = device.settings().float_dtype.into();
    let length = first.placement.local_len();
    match first.init.constant(&first.placement) {
        // Without an array in host memory.
        Some(value) => {
            assert_eq!(shape.iter().product::<usize>(), length, "elements of {}", first.name);
            Tensor::full(shape, value, (device, dtype))
        }
        None => tensor_from_host(first.range(0..length), shape, dtype, device),
    }
}
