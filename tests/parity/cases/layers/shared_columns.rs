//! `ColumnParallelLinear` with columns that several ranks share, in a loop without the data-parallel wrapper: sums and
//! norms of gradients are those of the whole layer.

use burn::grad_clipping::GradientClipping;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn_megatron::data_parallel::{clip_each_gradient, sum_partial_gradients};
use burn_megatron::parameters::{Declaration, Placement, read_host};
use burn_megatron::tensor_parallel::{ColumnGroups, ColumnParallelLinear, ColumnParallelLinearConfig};

use super::linear::{plain_linear, whole_linear};
use super::{BOTH_TYPES, Check, checks};
use crate::parity::cases::comparison::{Pass, Scene, TP2, TP4, backward};

pub const CHECKS: &[Check] = checks! {
    shared_columns_match_those_of_the_whole: &[TP2, TP4], BOTH_TYPES;
};

const TOKENS: usize = 5;
const D_INPUT: usize = 6;
/// Of each group, two of which four ranks hold: the columns of each rank by itself, and those that it shares.
const OWN: usize = 3;
const SHARED: usize = 5;
/// Below the norm of any gradient here.
const LIMIT: f32 = 0.5;

fn shared_columns_match_those_of_the_whole(scene: &Scene) -> anyhow::Result<()> {
    let count = scene.size() / 2;
    let (group_width, local_width) = (2 * OWN + SHARED, OWN + SHARED);
    let d_output = count * group_width;
    let input = scene.random("input", TOKENS * D_INPUT);
    let linear = plain_linear(scene, "grouped", D_INPUT, d_output, true);
    // Where the columns of a rank are in the whole.
    let columns = |rank: usize| {
        let (group, place) = (rank / 2 * group_width, rank % 2);
        let own = group + place * OWN..group + (place + 1) * OWN;
        own.chain(group + 2 * OWN..group + group_width)
    };
    let gradient_of = |rank: usize| scene.random(&format!("output gradient {rank}"), TOKENS * local_width);
    // The gradient of a shared column is the sum of those of its ranks.
    let mut sum = vec![0.0; TOKENS * d_output];
    for rank in 0..scene.size() {
        let gradient = gradient_of(rank);
        for token in 0..TOKENS {
            for (local, column) in columns(rank).enumerate() {
                sum[token * d_output + column] += gradient[token * local_width + local];
            }
        }
    }
    let serial = Pass::run(
        scene.tensor(input.clone(), [TOKENS, D_INPUT]),
        scene.tensor(sum, [TOKENS, d_output]),
        |input| linear.forward(input),
    );
    let expected = whole_linear(&linear, &serial.gradients);

    let config = ColumnParallelLinearConfig::of(&linear).with_groups(Some(ColumnGroups { count, shared: SHARED }));
    let layer: ColumnParallelLinear = config.from_linear(linear, &scene.context.scope("grouped"))?;
    let output = layer.forward(scene.tensor(input, [TOKENS, D_INPUT]));
    let whole = Placement::whole([TOKENS, local_width]);
    let mine: Vec<f64> = (0..TOKENS)
        .flat_map(|token| columns(scene.group().rank()).map(move |column| token * d_output + column))
        .map(|place| serial.output[place])
        .collect();
    scene.close("the output", &read_host(output.clone()), &mine, &whole)?;
    let gradient = scene.tensor(gradient_of(scene.group().rank()), [TOKENS, local_width]);
    let mut gradients = GradientsParams::from_grads(backward(output, gradient), &layer);
    sum_partial_gradients(&mut gradients, &layer, &scene.context)?;
    let clipping = GradientClipping::Norm(LIMIT);
    clip_each_gradient(&mut gradients, &layer, &clipping, &scene.context)?;
    let found = read(&layer, &gradients, scene);
    anyhow::ensure!(found.len() == 4, "{} parameters", found.len());
    for (Declaration { name, placement, .. }, gradient) in found {
        let (_, whole) = &expected[name.strip_prefix("grouped.").unwrap_or(&name)];
        let norm = whole.iter().map(|value| value * value).sum::<f64>().sqrt();
        let clipped: Vec<f64> = whole.iter().map(|value| value * f64::from(LIMIT) / norm).collect();
        scene.close(&format!("the gradient of {name}"), &gradient, &clipped, &placement)?;
    }
    Ok(())
}

/// What each parameter has declared, and its gradient.
fn read(layer: &ColumnParallelLinear, gradients: &GradientsParams, scene: &Scene) -> Vec<(Declaration, Vec<f64>)> {
    struct Reader<'a> {
        gradients: &'a GradientsParams,
        scene: &'a Scene,
        found: Vec<(Declaration, Vec<f64>)>,
    }
    impl ModuleVisitor for Reader<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let declaration = self.scene.context.registry().declaration(param.id);
            let gradient = self.gradients.get::<D>(param.id);
            if let (Some(declaration), Some(gradient)) = (declaration, gradient) {
                self.found.push((declaration, read_host(gradient)));
            }
        }
    }
    let mut reader = Reader {
        gradients,
        scene,
        found: Vec::new(),
    };
    layer.visit(&mut reader);
    reader.found
}
