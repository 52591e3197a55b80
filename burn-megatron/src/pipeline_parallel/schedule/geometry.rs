//! `Geometry`: which stage runs which virtual stage, and what a task takes and makes. Used by everything that makes or
//! reads schedules.

use super::{Action, Direction, Message, Pass, Schedule, Task};

/// The stages and chunks of a pipeline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Stages: p.
    pub num_stages: usize,
    /// Chunks per stage: v.
    pub num_chunks: usize,
}

/// One computation of the whole pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    /// The stage that does it.
    pub stage: usize,
    /// Which way.
    pub pass: Pass,
    /// What.
    pub task: Task,
}

/// What a message is, without the stages it goes between.
pub(super) type Tag = (Direction, usize, usize);

impl Message {
    /// What the message is: direction, micro-batch and the virtual stage that made it.
    pub(super) fn tag(&self) -> Tag {
        (self.direction, self.micro_batch, self.from)
    }
}

impl Pass {
    /// The direction of the messages that this pass takes and makes.
    pub(super) fn direction(self) -> Direction {
        match self {
            Pass::Forward => Direction::Forward,
            Pass::Backward => Direction::Backward,
        }
    }

    /// The action that runs `task` this way.
    pub(super) fn action(self, task: Task) -> Action {
        match self {
            Pass::Forward => Action::Forward(task),
            Pass::Backward => Action::Backward(task),
        }
    }
}

impl Schedule {
    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            num_stages: self.num_stages(),
            num_chunks: self.num_chunks,
        }
    }
}

impl Geometry {
    /// p * v. Saturates, because a schedule made by hand may hold any number.
    pub fn num_virtual_stages(self) -> usize {
        self.num_stages.saturating_mul(self.num_chunks)
    }

    /// The stage that runs a virtual stage.
    pub fn stage_of(self, virtual_stage: usize) -> usize {
        virtual_stage % self.num_stages
    }

    /// The virtual stage that consumes a message; none at either end of the pipeline.
    pub fn consumer(self, message: &Message) -> Option<usize> {
        message.to().filter(|&to| to < self.num_virtual_stages())
    }

    fn virtual_stage(self, step: Step) -> usize {
        step.task.chunk * self.num_stages + step.stage
    }

    fn step_of(self, virtual_stage: usize, pass: Pass, micro_batch: usize) -> Step {
        Step {
            stage: self.stage_of(virtual_stage),
            pass,
            task: Task {
                micro_batch,
                chunk: virtual_stage / self.num_stages,
            },
        }
    }

    /// The step whose output `step` takes; none where its input comes from outside the pipeline.
    pub fn source(self, step: Step) -> Option<Step> {
        let here = self.virtual_stage(step);
        let source = match step.pass {
            Pass::Forward => here.checked_sub(1)?,
            Pass::Backward => Some(here + 1).filter(|&next| next < self.num_virtual_stages())?,
        };
        Some(self.step_of(source, step.pass, step.task.micro_batch))
    }

    /// The message that `step` takes, as its receiver writes it; none where nothing has to be sent.
    pub fn input(self, step: Step) -> Option<Message> {
        let source = self.source(step)?;
        (source.stage != step.stage).then(|| Message {
            direction: step.pass.direction(),
            micro_batch: step.task.micro_batch,
            from: self.virtual_stage(source),
            peer: source.stage,
        })
    }

    /// The message that `step` makes, as its sender writes it; none where nothing has to be sent.
    pub fn output(self, step: Step) -> Option<Message> {
        let mut message = Message {
            direction: step.pass.direction(),
            micro_batch: step.task.micro_batch,
            from: self.virtual_stage(step),
            peer: step.stage,
        };
        message.peer = self.stage_of(self.consumer(&message)?);
        (message.peer != step.stage).then_some(message)
    }

    /// The step that makes `message`.
    pub fn making_step(self, message: &Message) -> Step {
        let pass = match message.direction {
            Direction::Forward => Pass::Forward,
            Direction::Backward => Pass::Backward,
        };
        self.step_of(message.from, pass, message.micro_batch)
    }
}
