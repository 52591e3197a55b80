//! `Recording`: what all ranks did in the profiled steps, and what their schedule takes when it is simulated.

use burn_megatron::pipeline_parallel::schedule::{Schedule, ScheduleKind, Simulation};
use burn_megatron::pipeline_parallel::{PipelineProfile, ProfileError, TimelineEvent, chrome_trace};
use burn_megatron::topology::{GroupKind, RankGrid};

/// What all ranks did.
pub struct Recording {
    grid: RankGrid,
    schedule: Schedule,
    kind: ScheduleKind,
    ranks: Vec<Vec<TimelineEvent>>,
    profile: PipelineProfile,
    simulation: Simulation,
}

impl Recording {
    /// Returns the recording of a grid's ranks, a list of events per rank, in steps with this schedule.
    ///
    /// # Errors
    /// When a stage recorded no pass.
    ///
    /// # Panics
    /// Unless there is a list per rank.
    pub fn new(
        grid: RankGrid,
        schedule: Schedule,
        kind: ScheduleKind,
        ranks: Vec<Vec<TimelineEvent>>,
    ) -> Result<Self, ProfileError> {
        // The ranks of the first stage are the first ones.
        let first_stage = 0..grid.world_size() / grid.pipeline_parallel_size();
        let pipelines: Vec<Vec<usize>> = first_stage
            .filter_map(|rank| grid.group(GroupKind::Pipeline, rank))
            .collect();
        let profile = PipelineProfile::new(&ranks, &pipelines, schedule.num_chunks)?;
        Ok(Self {
            simulation: schedule.simulate(&profile.costs),
            grid,
            schedule,
            kind,
            ranks,
            profile,
        })
    }

    pub fn ranks(&self) -> &[Vec<TimelineEvent>] {
        &self.ranks
    }

    /// The schedule of a step.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    pub fn profile(&self) -> &PipelineProfile {
        &self.profile
    }

    /// The schedule with the times that were measured.
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// The name of a rank: its number and its place on the axes that have more than one.
    pub fn rank_name(&self, rank: usize) -> String {
        let at = self.grid.coordinates(rank);
        let places = [
            ("stage", at.pipeline, self.grid.pipeline_parallel_size()),
            ("tensor", at.tensor, self.grid.tensor_parallel_size()),
            ("data", at.data, self.grid.data_parallel_size()),
        ];
        let places = places.iter().filter(|(_, _, size)| *size > 1);
        let places = places.map(|(axis, place, _)| format!(", {axis} {place}"));
        format!("rank {rank}{}", places.collect::<String>())
    }

    /// What was recorded, in words.
    pub fn title(&self) -> String {
        let Schedule {
            num_chunks,
            num_micro_batches,
            ..
        } = self.schedule;
        let order = match self.schedule.num_stages() {
            1 => String::new(),
            stages if num_chunks > 1 => format!("{}, {stages} stages of {num_chunks} chunks, ", self.kind),
            stages => format!("{}, {stages} stages, ", self.kind),
        };
        format!("{order}{num_micro_batches} micro-batches, {}", self.step_names())
    }

    /// The measured and the simulated bubble and those of the formulas, in words.
    pub fn bubbles(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let by_formula = (self.schedule.num_stages() - 1) as f64 / self.schedule.num_micro_batches as f64;
        format!(
            "bubble: measured {}, simulated {}, (p-1)/m {}, (p-1)/(v m) {}",
            percent(self.profile.bubble()),
            percent(self.simulation.bubble()),
            percent(by_formula),
            percent(by_formula / self.schedule.num_chunks as f64),
        )
    }

    /// How long the passes of a step take, measured and simulated, in words.
    pub fn makespans(&self) -> String {
        format!(
            "all passes of a step: measured {:.1} ms, simulated {:.1} ms; a transfer {:.2} ms",
            1e3 * self.profile.makespan_secs(),
            1e3 * self.simulation.makespan_secs(),
            1e3 * self.profile.costs.transfer_secs,
        )
    }

    /// All figures, in a line.
    pub fn summary(&self) -> String {
        format!("{} | {} | {}", self.step_names(), self.bubbles(), self.makespans())
    }

    /// The events in Chrome's trace format.
    pub fn trace(&self) -> String {
        let names: Vec<String> = (0..self.ranks.len()).map(|rank| self.rank_name(rank)).collect();
        chrome_trace(&self.ranks, &names).to_string()
    }

    fn step_names(&self) -> String {
        let steps = &self.profile.steps;
        match (steps.first(), steps.last()) {
            (Some(first), Some(last)) if first.step < last.step => format!("steps {} to {}", first.step, last.step),
            (Some(first), _) => format!("step {}", first.step),
            _ => "no step".to_owned(),
        }
    }
}
