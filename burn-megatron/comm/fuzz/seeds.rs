//! Writes the valid inputs of every target to `corpus/<target>/`, where the fuzzers begin: `cargo run --bin seeds`.

use std::{fs, io};

fn main() -> io::Result<()> {
    for target in burn_megatron_comm::fuzzing::TARGETS {
        let folder = format!("{}/corpus/{}", env!("CARGO_MANIFEST_DIR"), target.name);
        fs::create_dir_all(&folder)?;
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            fs::write(format!("{folder}/seed-{number}"), seed)?;
        }
    }
    Ok(())
}
