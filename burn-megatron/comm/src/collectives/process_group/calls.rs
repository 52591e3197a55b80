//! The typed calls on host slices, blocking and started.
//!
//! Each operation has its checks, and what the engine does, in one function for both forms: `…_of`, of buffers that are
//! borrowed in a blocking call and owned in a started one.

use super::ProcessGroup;
use super::checks::{Buffer, Checked, Operate, checked, describe};
use crate::collectives::call::{Operation, ReduceOp};
use crate::collectives::element::CollectiveElement;
use crate::collectives::engines::engine::Engine;
use crate::collectives::error::CollectiveError;
use crate::collectives::lanes::pending::Pending;
use bytemuck::{cast_slice, cast_slice_mut};
use std::ops::DerefMut;

/// Collectives and transfers.
impl ProcessGroup {
    /// Replaces `buffer` on every rank by its reduction over all ranks.
    ///
    /// # Errors
    /// A wrong argument on this rank; different calls on different ranks; a rank that fails, or
    /// does not come in time; an earlier error of this group. The same holds for every call below.
    #[track_caller]
    pub fn all_reduce<T: CollectiveElement>(&self, buffer: &mut [T], op: ReduceOp) -> Result<(), CollectiveError> {
        self.run(self.all_reduce_of(buffer, op)).map(drop)
    }

    /// Starts [`all_reduce`](Self::all_reduce); the handle returns the reduced buffer.
    #[track_caller]
    pub fn all_reduce_start<T: CollectiveElement>(&self, buffer: Vec<T>, op: ReduceOp) -> Pending<Vec<T>> {
        self.start(self.all_reduce_of(buffer, op))
    }

    fn all_reduce_of<B: Buffer + DerefMut>(&self, mut buffer: B, op: ReduceOp) -> Checked<impl Operate<B> + use<B>> {
        let call = self.reduction(describe::<B::Element>(Operation::AllReduce, buffer.len()), op)?;
        checked(call, move |engine, call| {
            engine.all_reduce(call, cast_slice_mut(&mut buffer))?;
            Ok(buffer)
        })
    }

    /// Fills `output` with the `shard` of every rank, in rank order.
    ///
    /// `output` is as long as `size` shards.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn all_gather<T: CollectiveElement>(&self, shard: &[T], output: &mut [T]) -> Result<(), CollectiveError> {
        self.run(self.all_gather_of(shard, output)).map(drop)
    }

    /// Starts [`all_gather`](Self::all_gather); the handle returns the output.
    #[track_caller]
    pub fn all_gather_start<T: CollectiveElement>(&self, shard: Vec<T>) -> Pending<Vec<T>> {
        let output = vec![T::zeroed(); shard.len() * self.size()];
        self.start(self.all_gather_of(shard, output))
    }

    fn all_gather_of<S: Buffer, B: Buffer<Element = S::Element> + DerefMut>(
        &self,
        shard: S,
        mut output: B,
    ) -> Checked<impl Operate<B> + use<S, B>> {
        let call = describe::<S::Element>(Operation::AllGather, shard.len());
        let call = self.of_shards(call, "output", output.len())?;
        checked(call, move |engine, call| {
            engine.all_gather(call, cast_slice(&shard), cast_slice_mut(&mut output))?;
            Ok(output)
        })
    }

    /// Fills `shard` with this rank's part of the reduction of `input` over all ranks.
    ///
    /// `input` is as long as `size` shards; rank r gets the r-th.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn reduce_scatter<T: CollectiveElement>(
        &self,
        input: &[T],
        shard: &mut [T],
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.run(self.reduce_scatter_of(input, shard, op)).map(drop)
    }

    /// Starts [`reduce_scatter`](Self::reduce_scatter); the handle returns the shard.
    #[track_caller]
    pub fn reduce_scatter_start<T: CollectiveElement>(&self, input: Vec<T>, op: ReduceOp) -> Pending<Vec<T>> {
        let shard = vec![T::zeroed(); input.len() / self.size()];
        self.start(self.reduce_scatter_of(input, shard, op))
    }

    fn reduce_scatter_of<S: Buffer, B: Buffer<Element = S::Element> + DerefMut>(
        &self,
        input: S,
        mut shard: B,
        op: ReduceOp,
    ) -> Checked<impl Operate<B> + use<S, B>> {
        let call = describe::<S::Element>(Operation::ReduceScatter, shard.len());
        let call = self.reduction(self.of_shards(call, "input", input.len())?, op)?;
        checked(call, move |engine, call| {
            engine.reduce_scatter(call, cast_slice(&input), cast_slice_mut(&mut shard))?;
            Ok(shard)
        })
    }

    /// Replaces `buffer` on every rank by that of the rank with group index `root`.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn broadcast<T: CollectiveElement>(&self, buffer: &mut [T], root: usize) -> Result<(), CollectiveError> {
        self.run(self.broadcast_of(buffer, root)).map(drop)
    }

    /// Starts [`broadcast`](Self::broadcast); the handle returns the root's buffer.
    #[track_caller]
    pub fn broadcast_start<T: CollectiveElement>(&self, buffer: Vec<T>, root: usize) -> Pending<Vec<T>> {
        self.start(self.broadcast_of(buffer, root))
    }

    fn broadcast_of<B: Buffer + DerefMut>(&self, mut buffer: B, root: usize) -> Checked<impl Operate<B> + use<B>> {
        let call = self.with_root(describe::<B::Element>(Operation::Broadcast, buffer.len()), root)?;
        checked(call, move |engine, call| {
            engine.broadcast(call, cast_slice_mut(&mut buffer))?;
            Ok(buffer)
        })
    }

    /// Sends `buffer` to the rank with group index `to`. May return before it has been received;
    /// a large buffer waits for the receiver.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn send<T: CollectiveElement>(&self, buffer: &[T], to: usize) -> Result<(), CollectiveError> {
        self.run(self.send_of(buffer, to)).map(drop)
    }

    /// Starts [`send`](Self::send); the handle returns the buffer.
    #[track_caller]
    pub fn send_start<T: CollectiveElement>(&self, buffer: Vec<T>, to: usize) -> Pending<Vec<T>> {
        self.start(self.send_of(buffer, to))
    }

    /// Starts [`send`](Self::send) of a buffer that is of no further use here: it is freed once it has been handed
    /// over.
    #[track_caller]
    pub fn send_owned_start<T: CollectiveElement>(&self, buffer: Vec<T>, to: usize) -> Pending<()> {
        let sent = self.send_of(buffer, to);
        self.start(sent.map(|(call, send)| (call, |engine: &dyn Engine, call: &_| send(engine, call).map(drop))))
    }

    fn send_of<S: Buffer>(&self, buffer: S, to: usize) -> Checked<impl Operate<S> + use<S>> {
        let call = self.transfer(describe::<S::Element>(Operation::Send, buffer.len()), to)?;
        checked(call, move |engine, call| {
            engine.send(call, cast_slice(&buffer))?;
            Ok(buffer)
        })
    }

    /// Fills `buffer` with what the rank with group index `from` sends.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn recv<T: CollectiveElement>(&self, buffer: &mut [T], from: usize) -> Result<(), CollectiveError> {
        self.run(self.recv_of(buffer, from)).map(drop)
    }

    /// Starts [`recv`](Self::recv) of `length` elements; the handle returns them.
    #[track_caller]
    pub fn recv_start<T: CollectiveElement>(&self, length: usize, from: usize) -> Pending<Vec<T>> {
        self.start(self.recv_of(vec![T::zeroed(); length], from))
    }

    fn recv_of<B: Buffer + DerefMut>(&self, mut buffer: B, from: usize) -> Checked<impl Operate<B> + use<B>> {
        let call = self.transfer(describe::<B::Element>(Operation::Recv, buffer.len()), from)?;
        checked(call, move |engine, call| {
            engine.recv(call, cast_slice_mut(&mut buffer))?;
            Ok(buffer)
        })
    }

    /// Returns when every rank of the group has called it.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    #[track_caller]
    pub fn barrier(&self) -> Result<(), CollectiveError> {
        self.run(barrier())
    }

    /// Starts [`barrier`](Self::barrier); the handle returns when every rank of the group has come.
    #[track_caller]
    pub fn barrier_start(&self) -> Pending<()> {
        self.start(barrier())
    }
}

fn barrier() -> Checked<impl Operate<()>> {
    let call = describe::<u8>(Operation::Barrier, 0);
    checked(call, |engine, call| engine.barrier(call))
}
