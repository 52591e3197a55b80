//! `BucketInFlight`: a bucket's updated parameters, available after the first wait for one of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use parking_lot::Mutex;

use crate::collectives::{CollectiveError, ProcessGroup};
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::buckets::reducer::Reducer;
use crate::data_parallel::gradients::reduced::ReducedGradients;
use crate::data_parallel::shards::parameter_gather::PendingParameters;

/// A bucket's updated parameters, available after the first wait. Dropped before that, it waits: the other ranks need
/// this one to gather them.
pub(crate) struct BucketInFlight {
    bucket: usize,
    group: ProcessGroup,
    /// The parameters that were updated.
    entries: Vec<GradientEntry>,
    /// `true` if others of the bucket stay as they are.
    pub(in crate::data_parallel) is_partial: bool,
    device: Device,
    reducer: Arc<Reducer>,
    state: Mutex<State>,
}

enum State {
    InFlight(PendingParameters),
    /// By number, `[len]`.
    Arrived(HashMap<usize, Tensor<1>>),
    /// Why the gather failed.
    Failed(String),
}

impl ReducedGradients {
    /// Returns the parameters of a bucket that is being gathered, for the module that they are of.
    pub(crate) fn in_flight(&self, pending: PendingParameters, device: &Device) -> BucketInFlight {
        let of_bucket = self.entries.iter().filter(|entry| entry.bucket() == pending.bucket);
        let (updated, others): (Vec<_>, Vec<_>) = of_bucket.cloned().partition(|entry| self.is_present(entry));
        BucketInFlight {
            bucket: pending.bucket,
            group: pending.group.clone(),
            entries: updated,
            is_partial: !others.is_empty(),
            device: device.clone(),
            reducer: self.reducer.clone(),
            state: Mutex::new(State::InFlight(pending)),
        }
    }
}

impl BucketInFlight {
    /// Returns whether it has a parameter of this number.
    pub(in crate::data_parallel) fn brings(&self, number: usize) -> bool {
        self.entries.iter().any(|entry| entry.number == number)
    }

    /// Returns the parameter of a number, `[len]`, after waiting for the bucket.
    ///
    /// # Errors
    /// When the collective failed: the module is lost.
    pub(in crate::data_parallel) fn value(&self, number: usize) -> Result<Tensor<1>, CollectiveError> {
        let mut state = self.state.lock();
        self.arrive(&mut state)?;
        let State::Arrived(values) = &*state else {
            unreachable!("`arrive` returned Ok");
        };
        Ok(values[&number].clone())
    }

    /// Waits for the bucket.
    pub(in crate::data_parallel) fn wait(&self) -> Result<(), CollectiveError> {
        self.arrive(&mut self.state.lock())
    }

    fn arrive(&self, state: &mut State) -> Result<(), CollectiveError> {
        // As it stays if the wait panics.
        let before = std::mem::replace(state, State::Failed("the wait for it panicked".to_owned()));
        let (after, result) = match before {
            State::InFlight(pending) => match self.take(pending) {
                Ok(values) => (State::Arrived(values), Ok(())),
                Err(error) => (State::Failed(error.to_string()), Err(error)),
            },
            State::Arrived(values) => (State::Arrived(values), Ok(())),
            State::Failed(first) => (State::Failed(first.clone()), Err(self.failed(first))),
        };
        *state = after;
        result
    }

    /// Waits for the bucket, makes its parameters of it, and gives back what memory of gradients they took.
    fn take(&self, pending: PendingParameters) -> Result<HashMap<usize, Tensor<1>>, CollectiveError> {
        let gathered = pending.wait()?;
        let values = self.entries.iter();
        let values = values.map(|entry| (entry.number, gathered.of(entry, &self.device)));
        let values = values.collect();
        if let Some(memory) = gathered.into_memory() {
            self.reducer.give_back(self.bucket, memory);
        }
        Ok(values)
    }

    fn failed(&self, first: String) -> CollectiveError {
        CollectiveError::Poisoned {
            group: self.group.name().to_owned(),
            call: format!("a read of the parameters of bucket {}", self.bucket),
            first,
        }
    }
}

impl Drop for BucketInFlight {
    fn drop(&mut self) {
        let is_in_flight = matches!(&*self.state.lock(), State::InFlight(_));
        if !is_in_flight || std::thread::panicking() {
            return;
        }
        if let Err(error) = self.wait() {
            tracing::warn!(bucket = self.bucket, %error, "updated parameters were not gathered");
        }
    }
}

impl fmt::Debug for BucketInFlight {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("BucketInFlight")
            .field("bucket", &self.bucket)
            .field("parameters", &self.entries.len())
            .finish_non_exhaustive()
    }
}
