//! The trials: each model in each layout and element type.

use std::error::Error;

use burn::nn::transformer::TransformerEncoder;
use burn::tensor::{DType, Device};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::launch::World;
use burn_megatron::sharded::{AxisRole, Mesh, Plan, device, parallelize};
use libtest_mimic::Trial;

use super::job;
use super::models::{Pair, Subject};
use super::training::{Ranks, compare, train};

/// Of every case.
pub const RANKS: usize = 2;

const MODELS: [&str; 2] = ["pair", "encoder"];
/// Tensor-parallel, with sequence parallelism, and as burn's own program would have it; data-parallel; fully sharded.
const LAYOUTS: [&str; 5] = ["tp2", "tp2sp", "tp2_unplaced", "dp2", "fsdp2"];
const TYPES: [&str; 2] = ["f64", "f32"];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
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
    let dtype = if dtype == "f64" { DType::F64 } else { DType::F32 };
    match model {
        "pair" => trains::<Pair>(layout, dtype, world),
        _ => trains::<TransformerEncoder>(layout, dtype, world),
    }
}

fn trains<M: Subject>(layout: &str, dtype: DType, world: &World) -> Result<(), Box<dyn Error>> {
    let is_tensor = layout.starts_with("tp2");
    let role = if is_tensor { AxisRole::Tensor } else { AxisRole::Data };
    let mesh = Mesh::connect(world, &[(role, RANKS)], &GroupConfig::new())?;
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
    let ranks = match layout {
        "tp2_unplaced" => Ranks::Unplaced(&mesh),
        _ => Ranks::Many(&mesh),
    };
    let plain = train::<M>(&Device::flex().autodiff(), dtype, &Ranks::One, Ok)?;
    let placed = device::<Flex>(FlexDevice).autodiff();
    let run = train::<M>(&placed, dtype, &ranks, |model| Ok(parallelize(model, &plan, &mesh)?))?;
    compare(dtype, &plain, &run)
}
