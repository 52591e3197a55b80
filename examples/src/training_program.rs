//! [`TrainingProgram`]: what runs on the device and with the family of models that the flags name.

use burn_megatron::launch::World;
use models::ModelFamily;
use models::registry::{FamilyProgram, run_with_family};

use crate::arguments::TrainingArguments;
use crate::device::{Program, TrainingBackend};

/// What runs on a device, with a family of models.
pub trait TrainingProgram {
    type Output;

    fn run<B: TrainingBackend, C: ModelFamily>(self, device: B::Device) -> anyhow::Result<Self::Output>;
}

impl TrainingArguments {
    /// Runs a program on this rank's device, with the model's family.
    ///
    /// # Errors
    /// When the device cannot be used, the flags name no family, or the program fails.
    pub fn run<P: TrainingProgram>(&self, world: &World, program: P) -> anyhow::Result<P::Output> {
        let family = self.model.family(self.checkpoint().as_ref())?.name;
        let program = OnAnyDevice { family, program };
        self.device.run(self.precision.dtype(), world, program)
    }
}

/// A program whose device is not known yet.
struct OnAnyDevice<P> {
    family: &'static str,
    program: P,
}

/// A program on a device, whose family is not known yet.
struct OnDevice<B: TrainingBackend, P> {
    device: B::Device,
    program: P,
}

impl<P: TrainingProgram> Program for OnAnyDevice<P> {
    type Output = P::Output;

    fn run<B: TrainingBackend>(self, device: B::Device) -> anyhow::Result<P::Output> {
        let Self { family, program } = self;
        run_with_family(family, OnDevice::<B, P> { device, program })?
    }
}

impl<B: TrainingBackend, P: TrainingProgram> FamilyProgram for OnDevice<B, P> {
    type Output = anyhow::Result<P::Output>;

    fn run<C: ModelFamily>(self) -> Self::Output {
        self.program.run::<B, C>(self.device)
    }
}
