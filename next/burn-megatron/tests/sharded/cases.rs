//! The trials: each model in each layout and element type.

use std::error::Error;

use burn::nn::transformer::TransformerEncoder;
use burn::tensor::{DType, Device, FloatDType, Tensor};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::data_parallel::clip_coefficient;
use burn_megatron::launch::World;
use burn_megatron::sharded::{
    AxisRole, Mesh, Phase, Plan, TrafficKind, backward, cast_parameters, clip_gradients, device, distribute,
    parallelize, scale_gradients,
};
use libtest_mimic::Trial;

use super::models::{Normed, Pair, Subject, filled, of_values};
use super::training::{Array, Options, Ranks, Run, compare, gradient_arrays, loss, norm, train};
use super::{job, wrapped};

/// Returns the number of ranks of a case.
pub fn ranks(case: &str) -> usize {
    wrapped::ranks(case).unwrap_or(2)
}

const MODELS: [&str; 2] = ["pair", "encoder"];
/// Tensor-parallel, with sequence parallelism, and as burn's own program would have it; data-parallel; fully sharded.
const LAYOUTS: [&str; 5] = ["tp2", "tp2sp", "tp2_unplaced", "dp2", "fsdp2"];
const TYPES: [&str; 2] = ["f64", "f32"];

pub fn trials() -> Vec<Trial> {
    let counted = |case: &'static str, name: &str| Trial::test(name, move || job::run(case));
    let mut trials = vec![
        counted("encoder counted tp2", "encoder_in_tp2_communicates_as_megatrons_layers"),
        counted(
            "encoder counted tp2sp",
            "encoder_in_tp2sp_communicates_as_megatrons_layers",
        ),
        counted(
            "encoder counted dp2",
            "encoder_in_dp2_communicates_its_loss_and_gradients_alone",
        ),
        counted(
            "encoder failing tp2",
            "a_rank_that_is_gone_is_an_error_of_the_pass_and_locks_stay_usable",
        ),
        counted("encoder elsewhere tp2", "a_model_on_another_device_is_refused_by_name"),
        counted("encoder half fsdp2", "encoder_in_bf16_is_near_one_rank_in_fsdp2"),
        counted(
            "encoder clipped tp2",
            "gradients_are_clipped_by_the_norm_of_the_whole_model_in_tp2",
        ),
        counted(
            "encoder clipped fsdp2",
            "gradients_are_clipped_by_the_norm_of_the_whole_model_in_fsdp2",
        ),
    ];
    for layout in ["tp2", "fsdp2"] {
        let case = format!("encoder accumulated {layout}");
        let name = format!("encoder_accumulates_and_clips_as_on_one_rank_in_{layout}_f32");
        trials.push(Trial::test(name, move || job::run(&case)));
    }
    trials.extend(wrapped::trials());
    for model in MODELS {
        for layout in LAYOUTS {
            for dtype in TYPES {
                let case = format!("{model} {layout} {dtype}");
                let name = format!("{model}_trains_as_on_one_rank_in_{layout}_{dtype}");
                trials.push(Trial::test(name, move || job::run(&case)));
            }
        }
    }
    trials
}

/// Plays a case on this rank.
pub fn play(case: &str, world: &World) -> Result<(), Box<dyn Error>> {
    let words: Vec<&str> = case.split(' ').collect();
    let [model, layout, dtype] = words[..] else {
        return Err(format!("a case of three words, got {case}").into());
    };
    let kind = if dtype == "f64" { DType::F64 } else { DType::F32 };
    match (model, layout) {
        (_, "counted") => counted(dtype, world),
        (_, "failing") => failing(dtype, world),
        (_, "elsewhere") => elsewhere(dtype, world),
        (_, "half") => half(dtype, world),
        (_, "clipped") => clipped(dtype, world),
        (_, "accumulated") => {
            let options = Options {
                accumulates: true,
                clips: true,
                ..Options::default()
            };
            trains::<TransformerEncoder>(dtype, DType::F32, options, world)
        }
        (_, "wrapped" | "wrapped_resumed" | "wrapped_alone" | "wrapped_refused" | "wrapped_drifts") => match model {
            "normed" => wrapped::play::<Normed>(layout, dtype, world),
            _ => wrapped::play::<TransformerEncoder>(layout, dtype, world),
        },
        ("pair", _) => trains::<Pair>(layout, kind, Options::default(), world),
        _ => trains::<TransformerEncoder>(layout, kind, Options::default(), world),
    }
}

/// The mesh of a layout, and what it cuts.
fn placed<M: Subject>(layout: &str, world: &World) -> Result<(Mesh, Plan), Box<dyn Error>> {
    let is_tensor = layout.starts_with("tp2");
    let role = if is_tensor { AxisRole::Tensor } else { AxisRole::Data };
    let mesh = Mesh::connect(world, &[(role, world.world_size())], &GroupConfig::new())?;
    let mesh = if layout == "tp2sp" {
        mesh.with_sequence_dimension(1)
    } else {
        mesh
    };
    let plan = match layout {
        "dp2" => Plan::new(),
        "fsdp2" => Plan::new().fully_shard(AxisRole::Data),
        _ => M::tensor_plan(),
    };
    Ok((mesh, plan))
}

fn trains<M: Subject>(layout: &str, dtype: DType, options: Options, world: &World) -> Result<(), Box<dyn Error>> {
    let (mesh, plan) = placed::<M>(layout, world)?;
    let ranks = match layout {
        "tp2_unplaced" => Ranks::Unplaced(&mesh),
        _ => Ranks::Many(&mesh),
    };
    let plain = train::<M>(&Device::flex().autodiff(), dtype, &Ranks::One, options, Ok)?;
    let placed = device::<Flex>(FlexDevice).autodiff();
    let run = train::<M>(&placed, dtype, &ranks, options, |model| {
        Ok(parallelize(model, &plan, &mesh)?)
    })?;
    compare(dtype, &plain, &run)
}

/// An encoder on a mesh, and the loss of a batch.
fn encoder(mesh: &Mesh, plan: &Plan) -> Result<(TransformerEncoder, Tensor<1>), Box<dyn Error>> {
    let device = device::<Flex>(FlexDevice).autodiff();
    let model = parallelize(filled(TransformerEncoder::make(&device), DType::F64), plan, mesh)?;
    let shape = TransformerEncoder::SHAPE;
    let values = (0..shape.iter().product()).map(|index| f64::from(index as u32).sin());
    let batch = of_values(values.collect(), shape, DType::F64, &device);
    let batch = distribute(batch, mesh, AxisRole::Data, 0);
    let loss = Subject::forward(&model, batch).powi_scalar(2).mean();
    Ok((model, loss))
}

/// In 16 bits a layout is as near to one rank as that is to 32 bits, and gathers half the bytes.
fn half(layout: &str, world: &World) -> Result<(), Box<dyn Error>> {
    type M = TransformerEncoder;
    let (mesh, plan) = placed::<M>(layout, world)?;
    let (plain, device) = (Device::flex().autodiff(), device::<Flex>(FlexDevice).autodiff());
    let in_half = Options {
        is_half: true,
        ..Options::default()
    };
    let on_one = |options| train::<M>(&plain, DType::F32, &Ranks::One, options, Ok);
    let (half, single) = (on_one(in_half)?, on_one(Options::default())?);
    let ours = train::<M>(&device, DType::F32, &Ranks::Many(&mesh), in_half, |model| {
        Ok(parallelize(model, &plan, &mesh)?)
    })?;
    let distance = |run: &Run, other: &Run| {
        let values = |run: &Run| -> Vec<f64> { run.parameters.iter().flat_map(|array| array.values.clone()).collect() };
        let pairs = values(run).into_iter().zip(values(other));
        pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    };
    let (from_one_rank, from_f32) = (distance(&ours, &half), distance(&half, &single));
    println!("largest differences: from one rank in bf16 {from_one_rank:.1e}, which is {from_f32:.1e} from f32");
    if from_f32 <= 1e-5 || from_one_rank >= 2.0 * from_f32 {
        return Err(format!("{from_one_rank} from one rank, which is {from_f32} from f32").into());
    }

    let model = parallelize(filled(M::make(&device), DType::F32), &plan, &mesh)?;
    let gathered = |model: &M, dtype: DType| {
        mesh.start_counting();
        let place = |batch| distribute(batch, &mesh, AxisRole::Data, 0);
        drop(loss(model, 0, 0..M::SHAPE[0], (dtype, &device), place));
        let records = mesh.stop_counting();
        let gathers = records.iter().filter(|record| record.kind == TrafficKind::AllGather);
        gathers.map(|record| record.bytes).sum::<usize>()
    };
    let in_bf16 = gathered(&cast_parameters(&model, FloatDType::BF16), DType::BF16);
    let in_f32 = gathered(&model, DType::F32);
    if in_f32 == 0 || 2 * in_bf16 != in_f32 {
        return Err(format!("gathered {in_bf16} bytes in bf16, {in_f32} in f32").into());
    }
    Ok(())
}

/// Gradients are scaled, and clipped by a norm in which each element counts once, wherever it is.
fn clipped(layout: &str, world: &World) -> Result<(), Box<dyn Error>> {
    const MOST: f64 = 0.05;
    let (mesh, plan) = placed::<TransformerEncoder>(layout, world)?;
    let (model, loss) = encoder(&mesh, &plan)?;
    let (_, mut gradients) = backward(loss, &model)?;
    let before = gradient_arrays(&model, &gradients);
    scale_gradients(&mut gradients, &model, 3.0);
    let found = clip_gradients(&mut gradients, &model, &mesh, MOST)?;
    let (expected, after) = (3.0 * norm(&before), gradient_arrays(&model, &gradients));
    let factor = 3.0 * clip_coefficient(expected, MOST);
    let values = |arrays: &[Array]| -> Vec<f64> { arrays.iter().flat_map(|array| array.values.clone()).collect() };
    let pairs = values(&before).into_iter().zip(values(&after));
    let largest = pairs.map(|(before, after)| (factor * before - after).abs());
    let largest = largest.fold(0.0, f64::max);
    if expected <= MOST || (found / expected - 1.0).abs() > 1e-12 || largest > 1e-12 {
        return Err(format!("norm {found}, expected {expected}; elements differ by {largest}").into());
    }
    Ok(())
}

/// A step's collectives are those of Megatron's layers: a merge of dimensions, which burn's linear layers begin with,
/// keeps cuts and terms.
fn counted(layout: &str, world: &World) -> Result<(), Box<dyn Error>> {
    let (mesh, plan) = placed::<TransformerEncoder>(layout, world)?;
    mesh.start_counting();
    let (model, loss) = encoder(&mesh, &plan)?;
    backward(loss, &model)?;
    let records = mesh.stop_counting();
    let kinds = [
        TrafficKind::AllReduce,
        TrafficKind::AllGather,
        TrafficKind::ReduceScatter,
    ];
    let found = [Phase::Forward, Phase::Backward, Phase::Gradients].map(|phase| {
        kinds.map(|kind| {
            let of_kind = records
                .iter()
                .filter(|record| record.phase == phase && record.kind == kind);
            of_kind.count()
        })
    });
    let expected = match layout {
        // Two of each layer in each pass, but for the input, which is whole and has no gradient; one of all gradients
        // that are sums.
        "tp2" => [[4, 0, 0], [3, 0, 0], [1, 0, 0]],
        // The loss, too. Backward, four of gradients and two of inputs: those that a merge has gathered stay whole.
        "tp2sp" => [[1, 3, 4], [0, 6, 3], [1, 0, 0]],
        // The loss.
        _ => [[1, 0, 0], [0, 0, 0], [1, 0, 0]],
    };
    if found != expected {
        return Err(format!("collectives {found:?}, expected {expected:?}: {records:#?}").into());
    }
    Ok(())
}

/// The error of a collective ends the pass with itself as the result, and the device can be used after it.
fn failing(layout: &str, world: &World) -> Result<(), Box<dyn Error>> {
    let (mesh, plan) = placed::<TransformerEncoder>(layout, world)?;
    let (model, loss) = encoder(&mesh, &plan)?;
    if world.rank() == 1 {
        mesh.group(0).give_up("this rank takes part no longer");
        return Ok(());
    }
    let Err(error) = backward(loss, &model) else {
        return Err("a pass without the other rank has no error".into());
    };
    let local = Tensor::<1>::ones([3], &device::<Flex>(FlexDevice))
        .sum()
        .into_scalar::<f32>();
    let on_device = model.layers[0].mha.query.weight.val().inner() * 0.0;
    let whole_here = Tensor::<1>::ones([3], &on_device.device()).sum().into_scalar::<f32>();
    if !error.to_string().contains("this rank takes part no longer") || [local, whole_here] != [3.0; 2] {
        return Err(format!("{error}; then {local} and {whole_here}").into());
    }
    Ok(())
}

fn elsewhere(layout: &str, world: &World) -> Result<(), Box<dyn Error>> {
    let (mesh, plan) = placed::<TransformerEncoder>(layout, world)?;
    let model = TransformerEncoder::make(&Device::flex());
    match parallelize(model, &plan, &mesh).map_err(|error| error.to_string()) {
        Err(error) if error.starts_with("parameter layers.0.mha.query.weight: a tensor on Device<Flex") => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err("it was placed".into()),
    }
}
