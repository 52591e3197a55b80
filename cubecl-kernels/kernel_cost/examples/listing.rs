//! Prints what the kernels of a listing cost, one JSON object per line.
//!
//! ```text
//! cuobjdump -sass kernel.cubin | cargo run -p kernel-cost --example listing -- \
//!     --threads 128 --registers 251 --shared 69648
//! ```
//!
//! `--gpu A100-40`, `A100-80` (the default) or `H100`; `--path` prints the hot path instead, as
//! `data/flash_attention_2.json` has it; `--instructions` prints it as the listing does.

use std::collections::HashMap;
use std::error::Error;
use std::io::Read;

use kernel_cost::gpu::Gpu;
use kernel_cost::hot::{HotPath, matrix_loop, memory_loop};
use kernel_cost::listing::{Function, parse};
use kernel_cost::matrix::matrix_cost;
use kernel_cost::memory::memory_cost;
use kernel_cost::occupancy::BlockSize;
use kernel_cost::peer::compact;
use kernel_cost::simulate::Residency;

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let number = |name: &str, or: u32| options.get(name).map_or(Ok(or), |value| value.parse());
    let size = BlockSize {
        threads: number("threads", 128)?,
        registers: number("registers", 128)?,
        shared_memory: number("shared", 0)?,
    };
    let gpu = options.get("gpu").map_or("A100-80", String::as_str);
    let gpu = Gpu::ALL.into_iter().find(|known| known.name == gpu);
    let gpu = gpu.ok_or("--gpu is A100-40, A100-80 or H100")?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    for function in parse(&text)? {
        let matrix = matrix_loop(&function.instructions);
        let path = matrix.as_ref().cloned().or_else(|| memory_loop(&function.instructions));
        match path {
            Some(path) if options.contains_key("path") => print_path(&path),
            Some(path) if options.contains_key("instructions") => {
                path.instructions
                    .iter()
                    .for_each(|instruction| println!("{instruction}"));
            }
            Some(path) => println!("{}", cost(&function, &path, matrix.is_some(), size, &gpu)?),
            None => eprintln!("{}: neither matrix instructions nor accesses to memory", function.name),
        }
    }
    Ok(())
}

/// Reads `--name value` and `--name`.
fn options() -> Result<HashMap<String, String>, String> {
    let mut options = HashMap::new();
    let mut arguments = std::env::args().skip(1).peekable();
    while let Some(argument) = arguments.next() {
        let name = argument
            .strip_prefix("--")
            .ok_or_else(|| format!("expected an option, got `{argument}`"))?;
        let value = arguments.next_if(|next| !next.starts_with("--")).unwrap_or_default();
        options.insert(name.to_string(), value);
    }
    Ok(options)
}

fn cost(
    function: &Function,
    path: &HotPath,
    is_matrix: bool,
    size: BlockSize,
    gpu: &Gpu,
) -> Result<serde_json::Value, Box<dyn Error>> {
    let blocks = size.resident(gpu);
    let cost = if is_matrix {
        let residency = Residency {
            blocks: blocks as usize,
            warps: size.warps() as usize,
        };
        serde_json::to_value(matrix_cost(path, residency, gpu)?)?
    } else {
        serde_json::to_value(memory_cost(path, blocks * size.threads, gpu))?
    };
    Ok(serde_json::json!({
        "function": function.name,
        "gpu": gpu.name,
        "blocks_per_multiprocessor": blocks,
        "cost": cost,
    }))
}

/// Prints where a path is, and its instructions.
fn print_path(path: &HotPath) {
    let runs = path.instructions.chunk_by(|a, b| b.address == a.address + 16);
    let addresses: Vec<String> = runs
        .map(|run| format!("{:x}-{:x}", run[0].address, run[run.len() - 1].address))
        .collect();
    let path: Vec<String> = path.instructions.iter().map(compact).collect();
    println!("{}", serde_json::json!({ "addresses": addresses, "path": path }));
}
