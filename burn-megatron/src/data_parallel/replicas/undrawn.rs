//! `Undrawn`: the parameters of which each rank draws its shard alone, so that no rank has ever held the whole module:
//! stage 3 of ZeRO.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param, ParamId, ParamMapper, list_param_ids};
use burn::tensor::{DType, Device, Tensor};

use crate::context::ParallelContext;
use crate::data_parallel::sharding_strategy::ShardingStrategy;
use crate::parameters::{FirstValues, ParameterEntry, list_undrawn, tensor_from_host};

/// The parameters of a module that have no values yet, though their names say which: they are trained, and of the
/// default type.
#[derive(Debug, Default)]
pub(in crate::data_parallel) struct Undrawn(HashMap<ParamId, FirstValues>);

impl Undrawn {
    /// Returns those of a module whose parameters will be sharded; none where parameters of burn's layers were
    /// converted.
    pub(in crate::data_parallel) fn of<M: Module>(
        module: &M,
        sharding: ShardingStrategy,
        context: &ParallelContext,
    ) -> Self {
        struct Finder<'a> {
            context: &'a ParallelContext,
            found: HashMap<ParamId, FirstValues>,
        }
        impl ModuleVisitor for Finder<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                if !param.is_initialized()
                    && is_plain(param)
                    && let Some(first) = self.context.registry().first_values(param.id)
                {
                    self.found.insert(param.id, first);
                }
            }
        }
        let mut finder = Finder {
            context,
            found: HashMap::new(),
        };
        let registry = context.registry();
        let is_converted = || list_param_ids(module).into_iter().any(|id| registry.is_converted(id));
        if sharding.shards_parameters() && !is_converted() {
            module.visit(&mut finder);
        }
        Self(finder.found)
    }

    pub(in crate::data_parallel) fn contains(&self, id: ParamId) -> bool {
        self.0.contains_key(&id)
    }

    /// The seed of one's values.
    pub(in crate::data_parallel) fn seed(&self, id: ParamId) -> Option<u64> {
        self.0.get(&id).map(|first| first.seed)
    }

    pub(in crate::data_parallel) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Draws a range of one's elements, `[range]`, if it is one of these.
    pub(in crate::data_parallel) fn draw(
        &self,
        id: ParamId,
        range: Range<usize>,
        dtype: DType,
        device: &Device,
    ) -> Option<Tensor<1>> {
        let first = self.0.get(&id)?;
        let length = range.len();
        Some(tensor_from_host(first.range(range), [length], dtype, device))
    }

    /// Forgets what they start with: from now on those without values are gathered.
    pub(in crate::data_parallel) fn forget(&self, context: &ParallelContext) {
        self.0.keys().for_each(|&id| context.registry().forget_first_values(id));
    }

    /// As [`list_parameters`](crate::parameters::list_parameters), which draws the others.
    pub(in crate::data_parallel) fn list<M: Module>(&self, module: &M) -> Vec<ParameterEntry> {
        list_undrawn(module, |id| self.contains(id))
    }
}

/// Returns whether a parameter is loaded and saved as it is, which burn only prints. One that is not counts as drawn.
pub(in crate::data_parallel) fn is_plain<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    let plain = ParamMapper::<Tensor<D>>::default();
    format!("{param:?}").ends_with(&format!("{plain:?}"))
}
