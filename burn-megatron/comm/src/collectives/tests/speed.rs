//! Measurements, not tests: `cargo test --release -- --ignored --nocapture speed`.

use super::*;
use crate::collectives::{CollectiveElement, ReduceOp};
use half::{bf16, f16};
use std::time::Instant;

/// Prints the best time of a few and the bus bandwidth, 2 (n - 1) / n · bytes / time.
fn measure<T: CollectiveElement>(group: &ProcessGroup, bytes: usize, repetitions: usize) {
    let n = group.size() as f64;
    let element = T::ELEMENT_TYPE;
    let mut buffer = vec![T::zeroed(); bytes / element.size_bytes()];
    let mut best = Duration::MAX;
    let mut total = Duration::ZERO;
    for _ in 0..repetitions {
        group.barrier().unwrap();
        let start = Instant::now();
        group.all_reduce(&mut buffer, ReduceOp::Sum).unwrap();
        best = best.min(start.elapsed());
        total += start.elapsed();
    }
    if group.rank() == 0 {
        let bandwidth = 2.0 * (n - 1.0) / n * bytes as f64 / best.as_secs_f64() / 1e9;
        let (engine, mean) = (group.engine_name(), total / repetitions as u32);
        println!(
            "{engine:13} {n} ranks {bytes:9} B {element:4}: best {best:9.1?}, mean {mean:9.1?}, \
             {bandwidth:6.2} GB/s"
        );
    }
}

/// Runs `body` on `n` ranks over one engine after the other.
fn on_all_engines(n: usize, body: impl Fn(ProcessGroup) + Sync) {
    for engine in ENGINES {
        Suite::new(engine).with_groups(n, TIMEOUT, |_, group| body(group));
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_all_reduce() {
    for n in [2, 4, 8] {
        on_all_engines(n, |group| {
            measure::<f32>(&group, 4 << 10, 1000);
            measure::<f32>(&group, 64 << 10, 200);
            measure::<f32>(&group, 1 << 20, 50);
            measure::<f32>(&group, 64 << 20, 8);
            measure::<bf16>(&group, 64 << 20, 4);
            measure::<f16>(&group, 64 << 20, 4);
        });
    }
}

/// In turn with `BURN_MEGATRON_FLIGHT_RECORDER_LEN=0`: what the flight recorder costs a small all-reduce.
#[test]
#[ignore = "a measurement"]
fn speed_of_small_all_reduces() {
    on_all_engines(2, |group| {
        for _ in 0..3 {
            measure::<f32>(&group, 4 << 10, 20_000);
        }
    });
}

/// How long ranks of some nodes take to meet.
#[test]
#[ignore = "a measurement"]
fn speed_of_barriers() {
    for (nodes, each) in [(2, 2), (2, 4), (2, 8), (4, 8)] {
        let names: Vec<String> = (0..nodes * each).map(|rank| format!("node{}", rank / each)).collect();
        let hosts: Vec<_> = names.iter().map(|name| Some(name.as_str())).collect();
        for engine in [EngineChoice::Tcp, EngineChoice::Hierarchical] {
            run_worlds(join_worlds_on(&hosts, TIMEOUT), |world| {
                let group = connect_all(&world, engine);
                group.barrier().unwrap();
                let mut times: Vec<Duration> = (0..1000)
                    .map(|_| {
                        let start = Instant::now();
                        group.barrier().unwrap();
                        start.elapsed()
                    })
                    .collect();
                times.sort_unstable();
                if group.rank() == 0 {
                    let [p50, p99] = [500, 990].map(|index| times[index]);
                    println!("{engine:13} {nodes} nodes of {each}: p50 {p50:9.1?}, p99 {p99:9.1?}");
                }
            });
        }
    }
}
