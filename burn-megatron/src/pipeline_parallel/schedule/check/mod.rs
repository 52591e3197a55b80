//! `Schedule::check`: the proof that a schedule does what it must and cannot hang. Called before a schedule is run or
//! drawn, and by every test of one.

use super::{Pass, Schedule, ScheduleError, Task, geometry::Step};
use survey::Survey;

mod rendezvous;
mod survey;
#[cfg(test)]
mod tests;

/// What a schedule needs, stage by stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleReport {
    /// The needs of each stage.
    pub stages: Vec<StageReport>,
}

/// What one stage needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageReport {
    /// The most tasks whose forward pass is done and whose backward pass is not, at one time. None are held in a
    /// forward-only schedule, which needs no activations.
    pub peak_activations: usize,
    /// The most messages to this stage that its channels held at one time, in an execution by rounds in which each
    /// stage that can carry out an action carries out one.
    pub peak_messages: usize,
}

impl Schedule {
    /// Proves the schedule, for channels that take `channel_capacity` messages before their receiver comes, and returns
    /// what it needs.
    ///
    /// Proven are, in this order:
    /// 1. every action names what exists: its micro-batch, its chunk, the stages at both ends of a message;
    /// 2. every chunk runs every micro-batch exactly once forward, and exactly once backward unless the schedule is
    ///    forward only;
    /// 3. every message is sent once and received once;
    /// 4. every channel's messages are received in the order in which they are sent;
    /// 5. a task comes after its input, a backward pass after its forward pass, a send after what makes its message;
    /// 6. a stage that carries out its list never waits for ever.
    ///
    /// Time and memory grow with the lists, whatever numbers they hold.
    ///
    /// # Errors
    /// The first fault, with the stage, the index in its list, the action, and what was expected. A deadlock names what
    /// each blocked stage waits for.
    pub fn check(&self, channel_capacity: usize) -> Result<ScheduleReport, ScheduleError> {
        for (name, size) in [
            ("num_stages", self.num_stages()),
            ("num_chunks", self.num_chunks),
            ("num_micro_batches", self.num_micro_batches),
        ] {
            if size == 0 {
                return Err(ScheduleError::Zero { name });
            }
        }
        let survey = Survey::of(self)?;
        self.check_complete(&survey)?;
        survey.check_pairs()?;
        survey.check_channel_orders()?;
        self.check_dependencies(&survey)?;
        let peak_messages = rendezvous::run(self, channel_capacity)?;
        let stages = peak_messages
            .into_iter()
            .enumerate()
            .map(|(stage, peak_messages)| StageReport {
                peak_activations: self.peak_activations(stage),
                peak_messages,
            })
            .collect();
        Ok(ScheduleReport { stages })
    }

    fn check_complete(&self, survey: &Survey) -> Result<(), ScheduleError> {
        let passes: &[Pass] = if self.is_forward_only {
            &[Pass::Forward]
        } else {
            &[Pass::Forward, Pass::Backward]
        };
        for (stage, list) in self.stages.iter().enumerate() {
            for &pass in passes {
                for chunk in 0..self.num_chunks {
                    for micro_batch in 0..self.num_micro_batches {
                        let task = Task { micro_batch, chunk };
                        if survey.index_of(Step { stage, pass, task }).is_none() {
                            return Err(ScheduleError::Missing {
                                stage,
                                pass,
                                task,
                                length: list.len(),
                            });
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn check_dependencies(&self, survey: &Survey) -> Result<(), ScheduleError> {
        let geometry = self.geometry();
        for (stage, list) in self.stages.iter().enumerate() {
            for (index, action) in list.iter().enumerate() {
                let is_before = |before: Option<usize>| before.is_some_and(|before| before < index);
                let place = || survey.place(stage, index);
                if let Some((pass, task)) = action.compute() {
                    let step = Step { stage, pass, task };
                    let pass = Pass::Forward;
                    if let Some(forward) = survey
                        .index_of(Step { pass, ..step })
                        .filter(|&forward| forward > index)
                    {
                        return Err(ScheduleError::BackwardBeforeForward {
                            place: place(),
                            forward: survey.place(stage, forward),
                        });
                    }
                    if let Some(input) = geometry.input(step) {
                        if !is_before(survey.receive_of(&input)) {
                            return Err(ScheduleError::NoInput {
                                place: place(),
                                input: format!("receive from stage {}: {input}", input.peer),
                            });
                        }
                    } else if let Some(source) = geometry.source(step)
                        && !is_before(survey.index_of(source))
                    {
                        return Err(ScheduleError::NoInput {
                            place: place(),
                            input: format!("{} of {}, on the same stage", source.pass, source.task),
                        });
                    }
                }
                for message in action.sends() {
                    let made = survey.index_of(geometry.making_step(message));
                    if let Some(made) = made.filter(|&made| made > index) {
                        return Err(ScheduleError::NotMade {
                            place: place(),
                            made: survey.place(stage, made),
                            message: message.to_string(),
                        });
                    }
                }
            }
        }
        Ok(())
    }

    fn peak_activations(&self, stage: usize) -> usize {
        if self.is_forward_only {
            return 0;
        }
        let mut held = 0usize;
        let mut peak = 0;
        for (pass, _) in self.stages[stage].iter().filter_map(|action| action.compute()) {
            match pass {
                Pass::Forward => held += 1,
                Pass::Backward => held -= 1,
            }
            peak = peak.max(held);
        }
        peak
    }
}
