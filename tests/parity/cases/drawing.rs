//! What ranks draw from burn's generators: the values of parameters without values, and the masks of burn's `Dropout`.

use anyhow::{Context as _, ensure};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Distribution, Tensor};
use burn_megatron::collectives::ProcessGroup;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, WeightSync};
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::parameters::read_host;
use libtest_mimic::Trial;

use super::comparison::{DP2, Layout, PP2, Scene, layout};
use tests::harness::{Case, Job};

const TP2DP2: Layout = layout("tp2dp2", 2, false, 2);

pub fn trials() -> Vec<Trial> {
    let job = |what: &str, layout: Layout| {
        let case = layout.describe(Case::new("parity", "drawing").with("what", what), "f32");
        Job::new(case, layout.world_size())
    };
    vec![
        job("masks", DP2).succeeds("burns_dropout_draws_other_masks_on_each_data_parallel_rank"),
        job("numbers", TP2DP2).succeeds("tensor_ranks_keep_drawing_the_same_numbers"),
        job("numbers", PP2).succeeds("stages_draw_numbers_of_their_own"),
        job("stage", PP2).succeeds("a_stage_whose_parameters_have_no_values_is_refused"),
    ]
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let scene = Scene::new(case, world)?;
    match case.setting::<String>("what")?.as_str() {
        "masks" => masks(&scene),
        "numbers" => numbers(&scene),
        _ => stage(&scene),
    }
}

#[derive(Module, Debug)]
struct Net {
    linear: Linear,
    dropout: Dropout,
}

/// A net whose values are not drawn yet, made as every rank makes it: seeded alike.
fn net(probability: f64) -> Net {
    tests::device().seed(1);
    Net {
        linear: LinearConfig::new(8, 8).init(&tests::device()),
        dropout: DropoutConfig::new(probability).init(),
    }
}

/// The first rank draws what one rank alone draws, and the other something else; their weights are one rank's.
fn masks(scene: &Scene) -> anyhow::Result<()> {
    let drops = |net: &Net| read_host(net.dropout.forward(Tensor::<2>::ones([16, 16], &tests::device())));
    let alone = initialize(net(0.5));
    let mask_alone = drops(&alone);

    let options = DataParallelConfig::new().with_weight_sync(WeightSync::Verify);
    let wrapped = DistributedDataParallel::new(net(0.5), &scene.context, options)?;
    ensure!(
        read_host(wrapped.module().linear.weight.val()) == read_host(alone.linear.weight.val()),
        "other weights than one rank draws"
    );
    let mask = drops(wrapped.module());
    let is_first = scene.context.data_group().rank() == 0;
    ensure!(
        (mask == mask_alone) == is_first,
        "the mask of one rank alone on the wrong rank"
    );
    let dropped = mask.iter().filter(|&&value| value == 0.0).count();
    ensure!((64..192).contains(&dropped), "{dropped} of 256 elements fall");
    let all = gathered(&mask, scene.context.data_group())?;
    ensure!(all[0] != all[1], "both ranks draw the same mask");

    // Wrapped once more, or in a program with another seed, a rank draws other numbers.
    let wrap = |net| DistributedDataParallel::new(net, &scene.context, DataParallelConfig::new());
    let again = wrap(wrapped.into_module())?;
    ensure!(drops(again.module()) != mask, "the same mask after every wrapping");
    let other = initialize(net(0.5));
    tests::device().seed(2);
    ensure!(drops(wrap(other)?.module()) != mask, "the same mask for every seed");
    Ok(())
}

/// Numbers drawn after wrapping: equal over the tensor group, different over the others.
fn numbers(scene: &Scene) -> anyhow::Result<()> {
    let context = &scene.context;
    let net = initialize(net(0.0));
    context.root().declare_rest_replicated(&net)?;
    DistributedDataParallel::new(net, context, DataParallelConfig::new())?;
    let drawn = read_host(Tensor::<1>::random([32], Distribution::Default, &tests::device()));
    for (group, equal) in [
        (context.tensor_group(), true),
        (context.data_group(), false),
        (context.pipeline_group(), false),
    ] {
        let all = gathered(&drawn, group)?;
        ensure!(
            group.size() == 1 || (all[0] == all[1]) == equal,
            "rank {}: the numbers of group {} are equal: {}",
            context.rank(),
            group.name(),
            !equal
        );
    }
    Ok(())
}

/// Each stage would draw its own layers first: other values than those of the whole model.
fn stage(scene: &Scene) -> anyhow::Result<()> {
    let wrap = |net| DistributedDataParallel::new(vec![net], &scene.context, DataParallelConfig::new());
    let message = wrap(net(0.0)).err().context("it was accepted")?.to_string();
    ensure!(
        message.contains("parameter 0.linear.weight has no values yet")
            && message.contains("burn_megatron::initialize"),
        "{message:?}"
    );
    wrap(initialize(net(0.0)))?;
    Ok(())
}

fn gathered(values: &[f64], group: &ProcessGroup) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut all = vec![0.0; values.len() * group.size()];
    group.all_gather(values, &mut all)?;
    Ok(all.chunks_exact(values.len()).map(<[f64]>::to_vec).collect())
}
