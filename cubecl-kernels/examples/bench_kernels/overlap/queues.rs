//! How kernels of several streams come to the GPU, by `CUDA_DEVICE_MAX_CONNECTIONS`.

use std::time::Instant;

use cubecl_kernels::cublaslt::measured::Choice;

use super::Scene;
use super::occupier::Work;
use crate::driver::Stream;
use crate::step_products::{Placed, StepProduct};
use crate::timing::median;

const SAMPLES: usize = 5;
/// Streams that hold a kernel which runs and one that waits for it.
const STREAMS: [usize; 4] = [1, 4, 12, 24];
/// Seconds of a kernel that others may have to wait for, in matmuls.
const LONG: f64 = 10.0;
/// Blocks of a collective.
const BLOCKS: u32 = 16;

/// Prints a table of microseconds.
pub fn print(scene: &Scene<'_>, layer: &StepProduct, connections: &str) -> anyhow::Result<()> {
    let placed = Placed::new(scene.products, &layer.product)?;
    let plan = scene.products.plan(&layer.product, Choice::default());
    let plan = plan.map_err(anyhow::Error::msg)?;
    let Some(plan) = plan else {
        anyhow::bail!("cuBLASLt has no kernel for {:?}", layer.product);
    };
    let alone = placed.seconds(&plan, &scene.stream)?;
    println!("µs of a kernel that is launched next to those of other streams:");
    println!("| connections | what | µs | alone |");
    println!("|---|---|---|---|");
    for count in STREAMS {
        let streams: Vec<Stream> = (0..count).map(|_| Stream::new()).collect::<Result<_, _>>()?;
        let occupation = scene.occupier.lasting(Work::Cache, 1, LONG * alone, &streams[0])?;
        let mut seconds = Vec::new();
        for _ in 0..SAMPLES {
            for stream in &streams {
                scene.occupier.launch(occupation, stream)?;
                scene.occupier.launch(occupation, stream)?;
            }
            let begun = Instant::now();
            placed.launch(&plan, 1, &scene.stream)?;
            scene.stream.wait()?;
            seconds.push(begun.elapsed().as_secs_f64());
            for stream in &streams {
                stream.wait()?;
            }
        }
        let what = format!("a matmul launched after kernels of {count} streams that wait for others in their streams");
        row(connections, &what, median(&mut seconds), alone);
    }
    for (priority, other) in [("the same", Stream::new()?), ("higher", Stream::first()?)] {
        let occupation = scene.occupier.lasting(Work::Cache, BLOCKS, alone, &other)?;
        let own = other.time(|| scene.occupier.launch(occupation, &other))?;
        let mut seconds = Vec::new();
        for _ in 0..SAMPLES {
            placed.launch(&plan, 1, &scene.stream)?;
            let ready = scene.stream.mark()?;
            other.wait_for(&ready)?;
            scene.occupier.launch(occupation, &other)?;
            placed.launch(&plan, 2, &scene.stream)?;
            let end = other.mark()?;
            scene.stream.wait()?;
            other.wait()?;
            seconds.push(end.since(&ready)?);
        }
        let what =
            format!("a kernel of {BLOCKS} blocks and {priority} priority, launched after a matmul and before two");
        row(connections, &what, median(&mut seconds), own);
    }
    Ok(())
}

fn row(connections: &str, what: &str, seconds: f64, alone: f64) {
    println!("| {connections} | {what} | {:.1} | {:.1} |", 1e6 * seconds, 1e6 * alone);
}
