//! [`stage_parameters`]: the parameters of each pipeline stage, of a model that is made without values.

use burn::tensor::Device;
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::data_parallel::{BucketParameter, bucket_parameters};
use burn_megatron::launch::World;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{Coordinates, ParallelConfig};

use crate::family::ModelFamily;
use crate::layers::ModelError;

/// Setting that the parameters of a stage depend on, in addition to the model.
#[derive(Clone, Copy, Debug)]
pub struct StageSetting<'a> {
    /// The sizes of the axes.
    pub parallel: &'a ParallelConfig,
    /// The layers of each virtual stage.
    pub layers: &'a LayerLayout,
}

/// Returns the parameters that a rank of each stage has, with the vocabulary's padding, in the order of its module:
/// those of the first tensor-parallel rank; the others have the same number.
///
/// The chunks are the ones that are trained, made with parameters that have no values: no memory need hold the model.
pub fn stage_parameters<C: ModelFamily>(
    model: &C,
    setting: &StageSetting<'_>,
) -> Result<Vec<Vec<BucketParameter>>, ModelError> {
    let parallel = setting.parallel;
    let num_stages = parallel.pipeline_parallel_size;
    let world_size = parallel.tensor_parallel_size * num_stages;
    let grid = parallel.grid(world_size)?;
    let of_stage = |pipeline| {
        let rank = grid.rank(Coordinates {
            data: 0,
            pipeline,
            tensor: 0,
        });
        // Other data-parallel ranks have the same.
        let world = match world_size {
            1 => World::single(),
            _ => World::fake(rank, world_size),
        };
        let context = ParallelContextConfig::new(*parallel)
            .init(&world)
            .expect("the grid fits its world, and nothing is connected");
        let context = context.with_lazy_parameters(true);
        let chunks = model.init_stage(setting.layers, &Device::flex(), &context)?;
        Ok(bucket_parameters(&chunks, &context))
    };
    (0..num_stages).map(of_stage).collect()
}

#[cfg(test)]
mod tests {
    use burn_megatron::context::ParallelContext;
    use burn_megatron::data_parallel::{BucketLayout, DataParallelConfig, DistributedDataParallel, ShardingStrategy};
    use burn_megatron::parameters::list_parameters;
    use burn_megatron::pipeline_parallel::LayerSizes;

    use super::*;
    use crate::family::ModelSettings;
    use crate::registry::{FAMILIES, FamilyProgram, run_with_family};

    /// The layout of a model of these settings, on p stages of v chunks.
    struct Layout {
        settings: ModelSettings,
        parallel: ParallelConfig,
        num_chunks: usize,
        data_parallel_size: usize,
    }

    impl Layout {
        fn new(tensor_parallel_size: usize, [p, v]: [usize; 2]) -> Self {
            let parallel = ParallelConfig::new()
                .with_tensor_parallel_size(tensor_parallel_size)
                .with_pipeline_parallel_size(p);
            Self {
                settings: ModelSettings::small(),
                parallel,
                num_chunks: v,
                data_parallel_size: 1,
            }
        }

        fn layers(&self, n_layers: usize) -> LayerLayout {
            let sizes = LayerSizes {
                n_layers,
                num_stages: self.parallel.pipeline_parallel_size,
                num_chunks: self.num_chunks,
            };
            LayerLayout::even(sizes).expect("layers divide")
        }

        fn counted<C: ModelFamily>(&self, model: &C) -> Vec<Vec<BucketParameter>> {
            let setting = StageSetting {
                parallel: &self.parallel,
                layers: &self.layers(model.n_layers()),
            };
            stage_parameters(model, &setting).expect("a layout of the model")
        }

        /// A rank of a stage, of a world whose other ranks do not exist.
        fn context(&self, pipeline: usize) -> ParallelContext {
            let model = self.parallel.tensor_parallel_size * self.parallel.pipeline_parallel_size;
            let world_size = model * self.data_parallel_size;
            let rank = self.parallel.grid(world_size).expect("a grid").rank(Coordinates {
                data: 0,
                pipeline,
                tensor: 0,
            });
            let config = ParallelContextConfig::new(self.parallel);
            config.init(&World::fake(rank, world_size)).expect("a context")
        }
    }

    /// Compares what is counted with the parameters of the model that is trained.
    struct Parameters(Layout);

    impl FamilyProgram for Parameters {
        type Output = ();

        fn run<C: ModelFamily>(self) {
            let model = C::from_settings(&self.0.settings);
            for (stage, counted) in self.0.counted(&model).into_iter().enumerate() {
                let layers = self.0.layers(model.n_layers());
                let chunks = model.init_stage(&layers, &Device::flex(), &self.0.context(stage));
                let listed = list_parameters(&chunks.expect("a stage"));
                let listed: Vec<(String, usize)> =
                    listed.iter().map(|entry| (entry.path.clone(), entry.len())).collect();
                let counted = counted.into_iter().map(|parameter| (parameter.path, parameter.len));
                assert_eq!(counted.collect::<Vec<_>>(), listed, "{}, stage {stage}", C::NAME);
            }
        }
    }

    /// Compares the buckets of what is counted with those that are allocated.
    struct Buckets(Layout, ShardingStrategy);

    impl FamilyProgram for Buckets {
        type Output = ();

        fn run<C: ModelFamily>(self) {
            let (Self(layout, sharding), bucket_size) = (self, 2000);
            let model = C::from_settings(&layout.settings);
            let counted = &layout.counted(&model)[0];
            let shards = layout.data_parallel_size;
            let buckets = BucketLayout::of_parameters(counted, bucket_size, shards, sharding);
            let context = layout.context(0);
            let chunks = model.init_stage(&layout.layers(model.n_layers()), &Device::flex().autodiff(), &context);
            let config = DataParallelConfig::new()
                .with_bucket_size(Some(bucket_size))
                .with_sharding(sharding);
            let wrapped = DistributedDataParallel::new(chunks.expect("a stage"), &context, config);
            let wrapped = wrapped.expect("a module that can be wrapped");
            let allocated = wrapped
                .trained()
                .iter()
                .map(|entry| (entry.bucket(), wrapped.owned(entry)));
            let slots = buckets.slots().iter().enumerate();
            let expected = slots.map(|(number, slot)| {
                let whole = 0..slot.len;
                let owned = if sharding.shards_optimizer() {
                    buckets.piece(number, 0)
                } else {
                    whole
                };
                (slot.bucket, owned)
            });
            let (allocated, expected): (Vec<_>, Vec<_>) = (allocated.collect(), expected.collect());
            assert_eq!(allocated, expected, "{}, {sharding:?}", C::NAME);
        }
    }

    #[test]
    fn counted_parameters_are_those_of_the_model_in_every_family() {
        for family in FAMILIES {
            for (tensor, stages) in [
                (1, [1, 1]),
                (2, [1, 1]),
                (4, [1, 1]),
                (2, [2, 1]),
                (1, [2, 2]),
                (1, [4, 1]),
            ] {
                for tied_embeddings in [true, false] {
                    let mut layout = Layout::new(tensor, stages);
                    layout.settings.tied_embeddings = Some(tied_embeddings);
                    run_with_family(family.name, Parameters(layout)).expect("a family");
                }
            }
        }
    }

    #[test]
    fn counted_buckets_are_those_that_are_allocated_in_every_family() {
        for family in FAMILIES {
            for sharding in ShardingStrategy::ALL {
                let mut layout = Layout::new(1, [1, 1]);
                layout.data_parallel_size = 2;
                run_with_family(family.name, Buckets(layout, sharding)).expect("a family");
            }
        }
    }

    #[test]
    fn a_model_that_no_memory_holds_is_counted() {
        let preset = crate::gpt::GptPreset::named("gpt3-1008.0b").expect("a preset");
        let model = preset.config().with_padded_vocab_size(Some(51200));
        let mut layout = Layout::new(8, [64, 1]);
        let counted = layout.counted(&model);
        let elements: usize = counted.iter().flatten().map(|parameter| parameter.len).sum();
        // The published number of parameters, a copy of the embedding, and what each tensor-parallel rank has whole.
        assert!((elements as f64 * 8.0 / 1008.0e9 - 1.0).abs() < 0.01, "{elements}");
        assert_eq!(counted.len(), 64);
        layout.num_chunks = 2;
        assert_eq!(layout.counted(&model)[3].len(), counted[3].len());
    }
}
