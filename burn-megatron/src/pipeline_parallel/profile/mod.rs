//! [`PipelineProfile`]: bubble and costs of a pipeline, from what its ranks recorded.

use std::collections::BTreeSet;

use super::schedule::{Costs, Pass};
use super::timeline::{Activity, TimelineEvent};

#[cfg(test)]
mod tests;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ProfileError {
    /// A pass that every step has was not recorded.
    #[error("no {pass} pass of virtual stage {virtual_stage} was recorded on ranks {ranks:?}: expected at least one")]
    Missing {
        pass: Pass,
        virtual_stage: usize,
        ranks: Vec<usize>,
    },
}

/// The passes of one step through one pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepProfile {
    /// The optimiser step, counted from 1.
    pub step: u64,
    /// The pipeline, by its number in the list that was given.
    pub pipeline: usize,
    /// When the first forward pass starts on any stage, in seconds since the timeline's zero.
    pub start_secs: f64,
    /// When the last backward pass ends on any stage, in seconds since the timeline's zero.
    pub end_secs: f64,
    /// How long the busiest stage computes.
    pub busiest_secs: f64,
}

/// What was measured over some steps of some pipelines with the same stages.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineProfile {
    /// Every step of every pipeline, ordered by step.
    pub steps: Vec<StepProfile>,
    /// The medians of all passes of a virtual stage, and of all transfers; no transfer takes no time.
    pub costs: Costs,
}

impl StepProfile {
    /// From the first forward pass to the last backward pass.
    pub fn makespan_secs(&self) -> f64 {
        self.end_secs - self.start_secs
    }

    /// The bubble: (makespan - busiest) / busiest, as [`Simulation::bubble`](super::schedule::Simulation::bubble).
    pub fn bubble(&self) -> f64 {
        if self.busiest_secs > 0.0 {
            (self.makespan_secs() - self.busiest_secs) / self.busiest_secs
        } else {
            0.0
        }
    }
}

impl PipelineProfile {
    /// Returns the profile of what was recorded.
    ///
    /// `ranks` holds the events of every rank, `pipelines` the ranks of each pipeline in the order of their stages, as
    /// many in each, and `num_chunks` is the number of chunks per stage. Events of other ranks do not count.
    ///
    /// # Errors
    /// When a virtual stage has no forward or no backward pass.
    ///
    /// # Panics
    /// When there is no pipeline, the pipelines differ in length, or hold ranks without a list of events.
    pub fn new(
        ranks: &[Vec<TimelineEvent>],
        pipelines: &[Vec<usize>],
        num_chunks: usize,
    ) -> Result<Self, ProfileError> {
        let num_stages = pipelines.first().map_or(0, Vec::len);
        assert!(num_stages > 0, "expected at least one pipeline, got {pipelines:?}");
        for pipeline in pipelines {
            assert!(
                pipeline.len() == num_stages && pipeline.iter().all(|&rank| rank < ranks.len()),
                "expected {num_stages} of {} ranks in each pipeline, got {pipelines:?}",
                ranks.len()
            );
        }
        let costs = |pass| -> Result<Vec<f64>, ProfileError> {
            (0..num_stages * num_chunks)
                .map(|virtual_stage| {
                    let (stage, chunk) = (virtual_stage % num_stages, virtual_stage / num_stages);
                    let holders: Vec<usize> = pipelines.iter().map(|pipeline| pipeline[stage]).collect();
                    let passes = holders.iter().flat_map(|&rank| &ranks[rank]);
                    let passes = passes.filter(|event| is_pass(event, pass) && event.chunk == Some(chunk));
                    median(passes.map(secs)).ok_or(ProfileError::Missing {
                        pass,
                        virtual_stage,
                        ranks: holders,
                    })
                })
                .collect()
        };
        let receives = pipelines.iter().flatten().flat_map(|&rank| &ranks[rank]);
        let receives = receives.filter(|event| event.activity == Activity::Receive);
        Ok(Self {
            costs: Costs {
                forward_secs: costs(Pass::Forward)?,
                backward_secs: costs(Pass::Backward)?,
                transfer_secs: median(receives.map(secs)).unwrap_or(0.0),
            },
            steps: steps(ranks, pipelines),
        })
    }

    /// The median bubble; 0 without steps.
    pub fn bubble(&self) -> f64 {
        median(self.steps.iter().map(StepProfile::bubble)).unwrap_or(0.0)
    }

    /// The median time from the first forward pass to the last backward pass; 0 without steps.
    pub fn makespan_secs(&self) -> f64 {
        median(self.steps.iter().map(StepProfile::makespan_secs)).unwrap_or(0.0)
    }

    /// When the first forward pass starts, in seconds since the timeline's zero; 0 without steps.
    pub fn start_secs(&self) -> f64 {
        let starts = self.steps.iter().map(|step| step.start_secs);
        starts.reduce(f64::min).unwrap_or(0.0)
    }
}

/// Every step of every pipeline.
fn steps(ranks: &[Vec<TimelineEvent>], pipelines: &[Vec<usize>]) -> Vec<StepProfile> {
    let members = pipelines.iter().flatten().flat_map(|&rank| &ranks[rank]);
    let numbers: BTreeSet<u64> = members.map(|event| event.step).collect();
    let every = numbers
        .into_iter()
        .flat_map(|step| pipelines.iter().enumerate().map(move |pipeline| (step, pipeline)));
    every
        .filter_map(|(step, (number, pipeline))| {
            let mut profile = StepProfile {
                step,
                pipeline: number,
                start_secs: f64::INFINITY,
                end_secs: f64::NEG_INFINITY,
                busiest_secs: 0.0,
            };
            for &rank in pipeline {
                let mut computed_secs = 0.0;
                for event in ranks[rank].iter().filter(|event| event.step == step) {
                    if is_pass(event, Pass::Forward) {
                        profile.start_secs = profile.start_secs.min(event.start);
                        computed_secs += secs(event);
                    } else if is_pass(event, Pass::Backward) {
                        profile.end_secs = profile.end_secs.max(event.end);
                        computed_secs += secs(event);
                    }
                }
                profile.busiest_secs = profile.busiest_secs.max(computed_secs);
            }
            (profile.start_secs.is_finite() && profile.end_secs.is_finite()).then_some(profile)
        })
        .collect()
}

fn is_pass(event: &TimelineEvent, pass: Pass) -> bool {
    event.activity
        == match pass {
            Pass::Forward => Activity::Forward,
            Pass::Backward => Activity::Backward,
        }
}

fn secs(event: &TimelineEvent) -> f64 {
    event.end - event.start
}

/// The middle value, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}
