//! `Schedule::simulate`: how long a schedule takes, from the time of each task.

use std::collections::HashMap;

use super::{
    Pass, Schedule, Task,
    geometry::{Geometry, Step, Tag},
};

#[cfg(test)]
mod tests;

/// How long things take, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// The forward pass of one micro-batch, per virtual stage.
    pub forward_secs: Vec<f64>,
    /// The backward pass of one micro-batch, per virtual stage.
    pub backward_secs: Vec<f64>,
    /// A message, from its send until it can be used.
    pub transfer_secs: f64,
}

/// When one task ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Which way.
    pub pass: Pass,
    /// What.
    pub task: Task,
    /// When it started.
    pub start_secs: f64,
    /// When it ended.
    pub end_secs: f64,
}

/// When every task ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Simulation {
    /// The tasks of each stage, in order.
    pub stages: Vec<Vec<Span>>,
}

impl Costs {
    /// The same time for every virtual stage, and messages that take none.
    pub fn equal(num_virtual_stages: usize, forward_secs: f64, backward_secs: f64) -> Self {
        Self {
            forward_secs: vec![forward_secs; num_virtual_stages],
            backward_secs: vec![backward_secs; num_virtual_stages],
            transfer_secs: 0.0,
        }
    }

    /// Sets the time of a message.
    pub fn with_transfer_secs(mut self, transfer_secs: f64) -> Self {
        self.transfer_secs = transfer_secs;
        self
    }

    fn of(&self, geometry: Geometry, step: Step) -> f64 {
        let virtual_stage = step.task.chunk * geometry.num_stages + step.stage;
        match step.pass {
            Pass::Forward => self.forward_secs[virtual_stage],
            Pass::Backward => self.backward_secs[virtual_stage],
        }
    }
}

impl Schedule {
    /// Returns when every task runs if all start as soon as they can.
    ///
    /// A stage computes one task at a time, in the order of its list. Sends never block and keep no stage busy; they do
    /// not share a wire, so each message arrives `transfer_secs` after the stage came to its send. Receives are posted
    /// early: a stage waits at the task that takes a message, not at the receive.
    ///
    /// # Panics
    /// Unless the schedule passes [`check`](Self::check), and unless `costs` has a finite time of at least 0 for
    /// each virtual stage and for messages.
    pub fn simulate(&self, costs: &Costs) -> Simulation {
        let geometry = self.geometry();
        for (name, secs) in [("forward", &costs.forward_secs), ("backward", &costs.backward_secs)] {
            let expected = geometry.num_virtual_stages();
            let got = secs.len();
            assert!(
                got == expected,
                "expected {expected} {name} times, one per virtual stage, got {got}"
            );
        }
        let transfers = std::slice::from_ref(&costs.transfer_secs);
        for secs in [&costs.forward_secs, &costs.backward_secs, transfers]
            .into_iter()
            .flatten()
        {
            assert!(
                secs.is_finite() && *secs >= 0.0,
                "expected finite times of at least 0, got {secs}"
            );
        }
        let mut clock = Clock {
            schedule: self,
            costs,
            positions: vec![0; self.num_stages()],
            arrivals: HashMap::new(),
            spans: vec![Vec::new(); self.num_stages()],
        };
        // Each stage advances as far as it can; what a task waits for does not depend on which stage goes first.
        let mut has_moved = true;
        while has_moved {
            has_moved = false;
            for stage in 0..self.num_stages() {
                has_moved |= clock.advance(stage);
            }
        }
        for (stage, (position, list)) in clock.positions.iter().zip(&self.stages).enumerate() {
            let length = list.len();
            assert!(
                *position == length,
                "stage {stage} stops at action {position} of {length}: check the schedule"
            );
        }
        Simulation { stages: clock.spans }
    }
}

struct Clock<'a> {
    schedule: &'a Schedule,
    costs: &'a Costs,
    /// The next action of each stage.
    positions: Vec<usize>,
    /// When each message is there.
    arrivals: HashMap<Tag, f64>,
    spans: Vec<Vec<Span>>,
}

impl Clock<'_> {
    /// Carries out the actions of a stage up to the first task whose input has not been sent. Returns whether there was
    /// one to carry out.
    fn advance(&mut self, stage: usize) -> bool {
        let geometry = self.schedule.geometry();
        let start = self.positions[stage];
        while let Some(action) = self.schedule.stages[stage].get(self.positions[stage]) {
            let now = self.spans[stage].last().map_or(0.0, |span| span.end_secs);
            if let Some((pass, task)) = action.compute() {
                let step = Step { stage, pass, task };
                let input_secs = match geometry.input(step) {
                    None => now,
                    Some(input) => match self.arrivals.get(&input.tag()) {
                        None => break,
                        Some(&secs) => secs,
                    },
                };
                let start_secs = now.max(input_secs);
                self.spans[stage].push(Span {
                    pass,
                    task,
                    start_secs,
                    end_secs: start_secs + self.costs.of(geometry, step),
                });
            }
            for message in action.sends() {
                self.arrivals.insert(message.tag(), now + self.costs.transfer_secs);
            }
            self.positions[stage] += 1;
        }
        self.positions[stage] > start
    }
}

impl Simulation {
    /// When the last task ends, in seconds from the start.
    pub fn makespan_secs(&self) -> f64 {
        let last = |spans: &Vec<Span>| spans.last().map_or(0.0, |span| span.end_secs);
        self.stages.iter().map(last).fold(0.0, f64::max)
    }

    /// The time that the busiest stage computes: what the step would take without waiting.
    pub fn ideal_secs(&self) -> f64 {
        let busy = |spans: &Vec<Span>| spans.iter().map(|span| span.end_secs - span.start_secs).sum();
        self.stages.iter().map(busy).fold(0.0, f64::max)
    }

    /// The bubble: (makespan - ideal) / ideal; 0 where nothing takes time.
    ///
    /// With equal stages and free messages it is (p - 1) / m for GPipe and 1F1B, and (p - 1) / (v m) interleaved.
    ///
    /// # Reference
    /// Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
    pub fn bubble(&self) -> f64 {
        let ideal_secs = self.ideal_secs();
        if ideal_secs > 0.0 {
            (self.makespan_secs() - ideal_secs) / ideal_secs
        } else {
            0.0
        }
    }
}
