//! `Multiprocessor`: runs warps cycle by cycle.

use std::collections::VecDeque;
use std::ops::Range;

use super::latency::{BARRIER, COPY_ISSUED, OPERANDS_READ, PORT_DELAY};
use super::plan::Step;
use crate::gpu::SUB_PARTITIONS;
use crate::pipe::Pipe;

/// Instructions of a sub-partition that may wait for a port.
const QUEUE: usize = 12;

/// Which warp a sub-partition asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The one that issued last.
    Greedy,
    /// The one after it.
    RoundRobin,
}

/// A warp that runs the path again and again.
#[derive(Clone, Debug)]
struct Warp {
    block: usize,
    position: usize,
    ready: u64,
    scoreboards: [u64; 6],
    is_at_barrier: bool,
}

/// A port that serves one after another.
#[derive(Clone, Copy, Debug, Default)]
struct Port {
    free: f64,
}

impl Port {
    /// Takes `cycles` from `now` on at the earliest, and returns when they end.
    fn serve(&mut self, now: u64, cycles: f64) -> f64 {
        self.free = self.free.max(now as f64) + cycles;
        self.free
    }
}

#[derive(Clone, Debug, Default)]
struct SubPartition {
    warps: Vec<usize>,
    /// The place in `warps` of the one that issued last.
    last: usize,
    pipes: [f64; Pipe::COUNT],
    /// When each access that waits for a port has passed it.
    queue: VecDeque<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct Multiprocessor<'a> {
    steps: &'a [Step],
    policy: Policy,
    warps_per_block: usize,
    warps: Vec<Warp>,
    sub_partitions: [SubPartition; SUB_PARTITIONS],
    shared_memory: Port,
    atomics: Port,
    /// Warps of each block that wait at its barrier.
    arrived: Vec<usize>,
    matrix_cycles: f64,
}

impl<'a> Multiprocessor<'a> {
    /// Makes one whose blocks' warps begin at these cycles.
    pub(super) fn new(steps: &'a [Step], policy: Policy, blocks: &[Vec<u64>]) -> Self {
        let mut sub_partitions: [SubPartition; SUB_PARTITIONS] = Default::default();
        let mut warps = Vec::new();
        for (block, starts) in blocks.iter().enumerate() {
            for &ready in starts {
                sub_partitions[warps.len() % SUB_PARTITIONS].warps.push(warps.len());
                warps.push(Warp {
                    block,
                    position: 0,
                    ready,
                    scoreboards: [0; 6],
                    is_at_barrier: false,
                });
            }
        }
        Self {
            steps,
            policy,
            warps_per_block: blocks.first().map_or(0, Vec::len),
            warps,
            sub_partitions,
            shared_memory: Port::default(),
            atomics: Port::default(),
            arrived: vec![0; blocks.len()],
            matrix_cycles: 0.0,
        }
    }

    /// Runs up to cycle `window.end`, and returns the cycles for which matrix instructions that were issued within the
    /// window hold the matrix units, of all sub-partitions together.
    pub(super) fn matrix_cycles(mut self, window: Range<u64>) -> f64 {
        for now in 0..window.end {
            if now == window.start {
                self.matrix_cycles = 0.0;
            }
            for index in 0..SUB_PARTITIONS {
                if let Some(place) = self.choose(index, now) {
                    self.issue(index, place, now);
                }
            }
        }
        self.matrix_cycles
    }

    /// Returns the place of the warp of a sub-partition that issues in this cycle.
    fn choose(&mut self, index: usize, now: u64) -> Option<usize> {
        let part = &mut self.sub_partitions[index];
        while part.queue.front().is_some_and(|end| *end <= now as f64) {
            part.queue.pop_front();
        }
        let part = &self.sub_partitions[index];
        let count = part.warps.len();
        let first = part.last + usize::from(self.policy == Policy::RoundRobin);
        (0..count)
            .map(|offset| (first + offset) % count)
            .find(|place| self.may_issue(part, *place, now))
    }

    fn may_issue(&self, part: &SubPartition, place: usize, now: u64) -> bool {
        let warp = &self.warps[part.warps[place]];
        if warp.is_at_barrier || warp.ready > now {
            return false;
        }
        let step = &self.steps[warp.position];
        let is_released =
            |scoreboard: usize| step.control.wait >> scoreboard & 1 == 0 || warp.scoreboards[scoreboard] <= now;
        let has_port = step.wavefronts == 0 && step.atomic_cycles == 0.0;
        (0..6).all(is_released)
            && part.pipes[step.pipe as usize] <= now as f64
            && (has_port || part.queue.len() < QUEUE)
    }

    fn issue(&mut self, index: usize, place: usize, now: u64) {
        let part = &mut self.sub_partitions[index];
        part.last = place;
        let warp = part.warps[place];
        let step = self.steps[self.warps[warp].position];
        if step.pipe == Pipe::Matrix {
            self.matrix_cycles += step.held;
        }
        part.pipes[step.pipe as usize] = part.pipes[step.pipe as usize].max(now as f64) + step.held;
        let times = self.access(index, &step, now);
        let warp = &mut self.warps[warp];
        for (scoreboard, time) in [(step.control.write, times.result), (step.control.read, times.operands)] {
            if let Some(scoreboard) = scoreboard {
                let pending = &mut warp.scoreboards[usize::from(scoreboard)];
                *pending = (*pending).max(time);
            }
        }
        warp.ready = now + u64::from(step.control.stall);
        warp.position = (warp.position + 1) % self.steps.len();
        if step.is_barrier {
            warp.is_at_barrier = true;
            let block = warp.block;
            self.arrive(block, now);
        }
    }

    /// Passes an access through its port, and returns when it is done.
    fn access(&mut self, index: usize, step: &Step, now: u64) -> Times {
        let is_memory = step.pipe == Pipe::LoadStore;
        let operands = now + OPERANDS_READ[usize::from(!is_memory)];
        if step.atomic_cycles > 0.0 {
            let end = self.atomics.serve(now + PORT_DELAY, step.atomic_cycles);
            self.sub_partitions[index].queue.push_back(end);
        }
        if step.wavefronts == 0 {
            return Times {
                result: now + step.latency,
                operands,
            };
        }
        let end = self.shared_memory.serve(now + PORT_DELAY, f64::from(step.wavefronts));
        self.sub_partitions[index].queue.push_back(end);
        // The latency is that of an access that meets a free port.
        let result = if step.is_copy {
            now + COPY_ISSUED
        } else {
            end as u64 + step.latency - 6
        };
        Times {
            result,
            operands: operands.max((result + 10).saturating_sub(step.latency)),
        }
    }

    /// Lets a block's warps continue when the last has arrived.
    fn arrive(&mut self, block: usize, now: u64) {
        self.arrived[block] += 1;
        if self.arrived[block] < self.warps_per_block {
            return;
        }
        self.arrived[block] = 0;
        for warp in self.warps.iter_mut().filter(|warp| warp.block == block) {
            warp.is_at_barrier = false;
            warp.ready = warp.ready.max(now + BARRIER);
        }
    }
}

/// When an instruction's result is written, and when its operands are read.
#[derive(Clone, Copy, Debug)]
struct Times {
    result: u64,
    operands: u64,
}
