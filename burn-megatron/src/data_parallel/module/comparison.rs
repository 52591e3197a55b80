//! What ranks compare at an interval of steps: whether those that share each layer were given the same samples, and
//! whether replicas are still the same.

use burn::module::Module;
use burn::tensor::{DType, Tensor};

use super::wrapper::DistributedDataParallel;
use crate::data_parallel::error::DataParallelError;
use crate::data_parallel::progress::Stated;
use crate::parameters::read_host;

impl<M: Module> DistributedDataParallel<M> {
    /// Returns whether what ranks are given is compared in the step that begins next.
    pub(crate) fn is_input_check_due(&self) -> bool {
        let interval = self.check_inputs_interval as u64;
        interval > 0 && self.steps_begun.is_multiple_of(interval)
    }

    /// Compares replicas as the last step has left them, if that is due.
    pub(in crate::data_parallel) fn check_replicas_at_interval(&self) -> Result<(), DataParallelError> {
        let (steps, interval) = (self.progress.steps, self.check_replicas_interval as u64);
        if interval == 0 || steps == 0 || !u64::from(steps).is_multiple_of(interval) {
            return Ok(());
        }
        self.check_replicas().map_err(|error| match error {
            DataParallelError::ReplicasDiffer { .. } => DataParallelError::AfterStep {
                step: steps,
                source: Box::new(error),
            },
            error => error,
        })
    }

    /// Returns this rank's statement of the step at hand.
    pub(in crate::data_parallel) fn stated(&self) -> Stated {
        Stated {
            said: self.context.current_step().said(),
            begun: self.steps_begun,
            learning_rate: self.learning_rate,
        }
    }

    /// Whether the input of the micro-batch that comes is to be compared over the tensor group; asked once for each.
    pub(crate) fn takes_comparison(&mut self) -> bool {
        std::mem::take(&mut self.compares_next)
    }

    /// Compares the loss of a micro-batch over ranks that share each layer; not under sequence parallelism, where it
    /// may be that of a rank's own tokens.
    pub(crate) fn compare_losses(&self, loss: Tensor<1>) -> Result<(), DataParallelError> {
        if self.context.is_sequence_parallel() {
            return Ok(());
        }
        let group = self.context.tensor_group();
        // What kernels of other processes may round differently.
        let allowed = match self.binding.dtype {
            DType::F16 | DType::BF16 => 1e-2,
            _ => 1e-4,
        };
        let loss = read_host(loss).first().copied().unwrap_or(f64::NAN);
        let mut all = vec![0.0; group.size()];
        let labelled = group.labelled("comparing the loss of the ranks");
        labelled.all_gather(&[loss], &mut all)?;
        let first_loss = all[0];
        let is_far = |other: f64| match (other.is_finite(), first_loss.is_finite()) {
            // Below one, by what it is: a loss near zero is the difference of larger numbers.
            (true, true) => (other - first_loss).abs() > allowed * first_loss.abs().max(other.abs()).max(1.0),
            // A loss that is not finite is reported elsewhere. Here it differs only if the other one is finite.
            (finite, first_finite) => finite != first_finite,
        };
        match all.iter().position(|other| is_far(*other)) {
            None => Ok(()),
            Some(other) => Err(DataParallelError::LossesDiffer {
                step: self.progress.steps + 1,
                group: group.name().to_owned(),
                first: group.ranks()[0],
                first_loss,
                other: group.ranks()[other],
                other_loss: all[other],
            }),
        }
    }
}
