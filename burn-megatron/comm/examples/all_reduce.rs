//! Starts four ranks, which add up a slice.
//!
//! ```text
//! cargo run -p burn-megatron-comm --example all_reduce
//! ```

use std::error::Error;
use std::process::ExitCode;

use burn_megatron_comm::collectives::{EngineChoice, ProcessGroup, ReduceOp};
use burn_megatron_comm::launch::World;

fn main() -> ExitCode {
    burn_megatron_comm::run(4, work)
}

fn work(world: &World) -> Result<(), Box<dyn Error>> {
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    let group = ProcessGroup::connect(world, "all", &ranks, &EngineChoice::Auto)?;
    let mut values = [world.rank() as f64, 1.0];
    group.all_reduce(&mut values, ReduceOp::Sum)?;
    println!("rank {} of {}: {values:?}", world.rank(), world.world_size());
    Ok(())
}
