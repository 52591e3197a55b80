//! Updated parameters on their way from every data-parallel rank to all, while the next forward pass has begun.
//!
//! The module has a parameter of a [`BucketInFlight`] as one whose value is made when it is first read, by a layer or
//! by anybody else: that is what waits for the bucket. On CUDA the wait is in the order of the streams, and no host
//! waits.
//!
//! Over NCCL this cannot deadlock with what the next pass communicates: every rank queues all gathers before any call
//! of that pass, on the data-parallel group's own stream, and a gather waits for nothing but updates, which each rank
//! has queued before it. What is queued after them may wait for gathers, never the other way round.

use std::sync::Arc;

use burn::module::Module;

use super::bucket_in_flight::BucketInFlight;
use super::replace::{await_parameters, touch_parameters};
use super::wrapper::DistributedDataParallel;
use crate::collectives::CollectiveError;

impl<M: Module> DistributedDataParallel<M> {
    /// Waits until all parameters of the last update are here.
    ///
    /// A [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer) returns while they are on their way from the ranks
    /// that have updated them; each is waited for when it is first read, at the latest by the next backward pass. To
    /// read parameters outside a pass of this wrapper, call this first: it returns an error, where a read panics.
    ///
    /// # Communication
    /// None of its own: waits for all-gathers over the data-parallel group.
    ///
    /// # Errors
    /// When one of these has failed: the module is lost.
    pub fn wait_for_parameters(&self) -> Result<(), CollectiveError> {
        let mut in_flight = self.in_flight.lock();
        if in_flight.is_empty() {
            return Ok(());
        }
        // All of them before the first error is returned: none may be left running.
        let arrived: Vec<_> = in_flight.iter().map(|bucket| bucket.wait()).collect();
        arrived.into_iter().collect::<Result<(), _>>()?;
        touch_parameters(self.module_in_flight());
        in_flight.clear();
        Ok(())
    }

    /// Gives the module a bucket's updated parameters, which are waited for when they are read.
    ///
    /// A bucket of which some stay as they are is waited for now: a pass that reads only these would find no memory
    /// for their gradients.
    pub(crate) fn expect_parameters(&mut self, bucket: BucketInFlight) -> Result<(), CollectiveError> {
        let bucket = Arc::new(bucket);
        if bucket.is_partial {
            bucket.wait()?;
        }
        let in_flight = self.in_flight.get_mut();
        in_flight.push(bucket.clone());
        let mut result = Ok(());
        self.module = self.module.take().map(|module| {
            let (module, awaited) = await_parameters(module, &self.binding, &bucket);
            result = awaited;
            module
        });
        result
    }

    /// The module, whose parameters may be on their way: a read of one waits for it, and unwinds with the error if it
    /// does not come.
    pub(crate) fn module_in_flight(&self) -> &M {
        self.module.as_ref().expect("absent inside `update` only")
    }
}
