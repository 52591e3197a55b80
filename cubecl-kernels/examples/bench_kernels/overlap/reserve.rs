//! Time of a matmul while multiprocessors are occupied, by the multiprocessors that its kernel was chosen without.

use std::time::Duration;

use cubecl_kernels::cublaslt::measured::{Choice, Planned};

use super::occupier::{Occupation, Work};
use super::{OCCUPIED, Scene};
use crate::driver::Stream;
use crate::step_products::{Placed, StepProduct};
use crate::timing::median;

/// Launches of a sample, and samples.
const LAUNCHES: usize = 4;
const SAMPLES: usize = 5;
/// Time after which a kernel that was launched runs.
const STARTED: Duration = Duration::from_micros(300);

/// Prints a table of microseconds.
pub fn print(scene: &Scene<'_>, layers: &[&StepProduct]) -> anyhow::Result<()> {
    let all = scene.gpu.multiprocessors()?;
    let reserves: Vec<u32> = std::iter::once(0)
        .chain(OCCUPIED)
        .filter(|&reserve| reserve < all)
        .collect();
    let columns: Vec<String> = reserves.iter().map(|reserve| format!("{}", all - reserve)).collect();
    println!(
        "µs of a matmul whose kernel is chosen for fewer multiprocessors (`SM_COUNT_TARGET`), while some are occupied:"
    );
    println!(
        "| matmul | occupied | by work in the | {} | best reserve |",
        columns.join(" | ")
    );
    println!("|{}", "---|".repeat(4 + reserves.len()));
    for layer in layers {
        print_layer(scene, layer, &reserves)?;
    }
    Ok(())
}

fn print_layer(scene: &Scene<'_>, layer: &StepProduct, reserves: &[u32]) -> anyhow::Result<()> {
    let all = scene.gpu.multiprocessors()?;
    let placed = Placed::new(scene.products, &layer.product)?;
    let mut plans = Vec::new();
    for reserve in reserves {
        // Of the whole GPU it is not described, as layers do not.
        let choice = Choice {
            multiprocessors: (*reserve > 0).then_some(all - reserve),
            ..Choice::default()
        };
        let plan = scene
            .products
            .plan(&layer.product, choice)
            .map_err(anyhow::Error::msg)?;
        let with_time = |plan| placed.seconds(&plan, &scene.stream).map(|alone| (plan, alone));
        plans.push(plan.map(with_time).transpose()?);
    }
    let other = Stream::new()?;
    let states = OCCUPIED
        .iter()
        .flat_map(|blocks| [Work::Cache, Work::Memory].map(|work| (*blocks, Some(work))));
    for (blocks, work) in std::iter::once((0, None)).chain(states) {
        let mut cells = Vec::new();
        let mut times = Vec::new();
        for plan in &plans {
            let measured = match (plan, work) {
                (None, _) => None,
                (Some((_, alone)), None) => Some((*alone, true)),
                (Some((plan, alone)), Some(work)) => {
                    let seconds = 3.0 * LAUNCHES as f64 * alone + 2.0 * STARTED.as_secs_f64();
                    let occupation = scene.occupier.lasting(work, blocks, seconds, &other)?;
                    Some(meanwhile(scene, &placed, plan, &other, occupation)?)
                }
            };
            cells.push(measured.map_or_else(
                || "-".to_owned(),
                |(seconds, is_whole)| format!("{:.1}{}", 1e6 * seconds, if is_whole { "" } else { " (alone in part)" }),
            ));
            times.push(measured.map_or(f64::INFINITY, |(seconds, _)| seconds));
        }
        let best = (0..times.len())
            .min_by(|a, b| times[*a].total_cmp(&times[*b]))
            .unwrap_or(0);
        let work = match work {
            None => "-",
            Some(Work::Cache) => "cache",
            Some(Work::Memory) => "memory",
        };
        let (name, cells) = (layer.layer, cells.join(" | "));
        println!("| {name} | {blocks} | {work} | {cells} | {} |", reserves[best]);
    }
    Ok(())
}

/// Returns the median seconds of a matmul while blocks are occupied, and whether they were until it ended.
fn meanwhile(
    scene: &Scene<'_>,
    placed: &Placed<'_>,
    plan: &Planned,
    other: &Stream,
    occupation: Occupation,
) -> anyhow::Result<(f64, bool)> {
    let (mut taken, mut is_whole) = (Vec::new(), true);
    for _ in 0..SAMPLES {
        scene.occupier.launch(occupation, other)?;
        std::thread::sleep(STARTED);
        let start = scene.stream.mark()?;
        placed.launch(plan, LAUNCHES, &scene.stream)?;
        let end = scene.stream.mark()?;
        // Queued last: in one queue with the matmuls it would hold them up.
        let occupied = other.mark()?;
        scene.stream.wait()?;
        other.wait()?;
        taken.push(end.since(&start)? / LAUNCHES as f64);
        is_whole &= occupied.since(&end)? >= 0.0;
    }
    Ok((median(&mut taken), is_whole))
}
