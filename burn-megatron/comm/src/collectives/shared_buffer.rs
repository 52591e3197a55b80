//! [`SharedBuffer`]: a buffer that the ranks of a node reduce in place, and the collectives on it.
//!
//! `exposed`, in the shared-memory engine, says who may touch such memory when; here the caller's access is taken away
//! for as long as a call lasts, by taking the memory out of the buffer.

use super::call::{CallDescriptor, Operation, ReduceOp};
use super::element::CollectiveElement;
use super::engines::engine::Engine;
use super::error::CollectiveError;
use super::group_core::GroupCore;
use super::lanes::pending::Pending;
use super::process_group::{Checked, Operate, ProcessGroup, checked, describe};
use super::shared_memory::SharedMemory;
use bytemuck::{cast_slice, cast_slice_mut};
use std::borrow::BorrowMut;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

/// A buffer of one group that collectives need not copy, made by [`ProcessGroup::allocate`].
///
/// Where the ranks share memory, each has its own buffer and reaches those of the others during the calls that take it;
/// otherwise it is an ordinary vector, and the calls do the same. It outlives its group and may be dropped at any time:
/// each rank has mappings of its own, which are removed with its buffer. There is no name that could be left over.
///
/// A call that fails once it has begun loses the buffer, because other ranks may still be at it: a started call does
/// not return it, and after a blocking one it is empty. It cannot be cloned, since all ranks of the group make such
/// memory together: `to_vec` copies the values.
pub struct SharedBuffer<T> {
    memory: Memory<T>,
    /// The group that it belongs to; none without one.
    group: Weak<GroupCore>,
    /// The call that allocated it, which is its name on all ranks.
    number: u64,
}

enum Memory<T> {
    Private(Vec<T>),
    Shared(SharedMemory),
}

impl<T: CollectiveElement> SharedBuffer<T> {
    /// Returns a buffer that belongs to no group: the calls below refuse it.
    pub fn ungrouped(values: Vec<T>) -> Self {
        Self {
            memory: Memory::Private(values),
            group: Weak::new(),
            number: 0,
        }
    }

    /// Returns whether the other ranks reach the buffer in place.
    pub fn is_shared(&self) -> bool {
        matches!(self.memory, Memory::Shared(_))
    }

    /// Takes the memory for a call; the buffer is empty until it is put back.
    fn take(&mut self) -> Memory<T> {
        std::mem::replace(&mut self.memory, Memory::Private(Vec::new()))
    }
}

impl<T: CollectiveElement> Deref for SharedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.memory {
            Memory::Private(values) => values,
            // Pages are aligned for every element, and `allocate` made whole ones.
            Memory::Shared(memory) => cast_slice(memory.bytes()),
        }
    }
}

impl<T: CollectiveElement> DerefMut for SharedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Memory::Private(values) => values,
            Memory::Shared(memory) => cast_slice_mut(memory.bytes_mut()),
        }
    }
}

impl<T: CollectiveElement> fmt::Debug for SharedBuffer<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedBuffer")
            .field("element_type", &T::ELEMENT_TYPE)
            .field("length", &self.len())
            .field("is_shared", &self.is_shared())
            .finish()
    }
}

impl<T: CollectiveElement> Memory<T> {
    /// Carries a call out, with the form of the engine that fits the memory.
    fn in_call(self, engine: &dyn Engine, call: &CallDescriptor) -> Result<Self, CollectiveError> {
        match self {
            Memory::Private(mut values) => {
                engine.in_place(call, cast_slice_mut(&mut values))?;
                Ok(Memory::Private(values))
            }
            Memory::Shared(memory) => engine.on_shared(call, memory).map(Memory::Shared),
        }
    }
}

/// Collectives on buffers of the group's own.
impl ProcessGroup {
    /// Returns a buffer of `length` zeros, for the calls below. Collective, the same length and type on every rank.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce). Where memory cannot be shared the buffer is an ordinary one, on every rank.
    #[track_caller]
    pub fn allocate<T: CollectiveElement>(&self, length: usize) -> Result<SharedBuffer<T>, CollectiveError> {
        let bytes = length
            .checked_mul(size_of::<T>())
            .filter(|&bytes| isize::try_from(bytes).is_ok());
        let call = describe::<T>(Operation::Allocate, length);
        let Some(bytes) = bytes else {
            let what = format!("{length} {}: more than the address space", T::ELEMENT_TYPE);
            return Err(self.refuse(&call, what));
        };
        let allocated = checked(call, |engine, call| Ok((call.sequence, engine.allocate(call, bytes)?)));
        let (number, shared) = self.run(allocated)?;
        Ok(SharedBuffer {
            memory: match shared {
                Some(memory) => Memory::Shared(memory),
                None => Memory::Private(vec![T::zeroed(); length]),
            },
            group: Arc::downgrade(self.core()),
            number,
        })
    }

    /// Replaces `buffer` on every rank by its reduction over all ranks: [`all_reduce`](Self::all_reduce), bit by bit.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); a buffer of another group; different buffers on different ranks. Unless the
    /// arguments were refused, the buffer is then empty.
    #[track_caller]
    pub fn all_reduce_shared<T: CollectiveElement>(
        &self,
        buffer: &mut SharedBuffer<T>,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.run(self.all_reduce_shared_of(buffer, op)).map(drop)
    }

    /// Starts [`all_reduce_shared`](Self::all_reduce_shared); the handle returns the buffer.
    #[track_caller]
    pub fn all_reduce_shared_start<T: CollectiveElement>(
        &self,
        buffer: SharedBuffer<T>,
        op: ReduceOp,
    ) -> Pending<SharedBuffer<T>> {
        self.start(self.all_reduce_shared_of(buffer, op))
    }

    fn all_reduce_shared_of<T: CollectiveElement, B: BorrowMut<SharedBuffer<T>>>(
        &self,
        buffer: B,
        op: ReduceOp,
    ) -> Checked<impl Operate<B> + use<T, B>> {
        let call = describe::<T>(Operation::AllReduceShared, buffer.borrow().len());
        self.on_shared(self.reduction(call, op)?, buffer)
    }

    /// Fills `buffer`, which is `size` shards long, with every rank's shard; the r-th of rank r is in its place.
    ///
    /// # Errors
    /// As [`all_reduce_shared`](Self::all_reduce_shared).
    #[track_caller]
    pub fn all_gather_shared<T: CollectiveElement>(&self, buffer: &mut SharedBuffer<T>) -> Result<(), CollectiveError> {
        self.run(self.all_gather_shared_of(buffer)).map(drop)
    }

    /// Starts [`all_gather_shared`](Self::all_gather_shared); the handle returns the buffer.
    #[track_caller]
    pub fn all_gather_shared_start<T: CollectiveElement>(&self, buffer: SharedBuffer<T>) -> Pending<SharedBuffer<T>> {
        self.start(self.all_gather_shared_of(buffer))
    }

    fn all_gather_shared_of<T: CollectiveElement, B: BorrowMut<SharedBuffer<T>>>(
        &self,
        buffer: B,
    ) -> Checked<impl Operate<B> + use<T, B>> {
        let length = buffer.borrow().len();
        let call = describe::<T>(Operation::AllGatherShared, length / self.size());
        self.on_shared(self.of_shards(call, "buffer", length)?, buffer)
    }

    /// Replaces this rank's shard of `buffer`, which is `size` shards long, by its reduction over all ranks; the others
    /// stay what they were on this rank.
    ///
    /// # Errors
    /// As [`all_reduce_shared`](Self::all_reduce_shared).
    #[track_caller]
    pub fn reduce_scatter_shared<T: CollectiveElement>(
        &self,
        buffer: &mut SharedBuffer<T>,
        op: ReduceOp,
    ) -> Result<(), CollectiveError> {
        self.run(self.reduce_scatter_shared_of(buffer, op)).map(drop)
    }

    /// Starts [`reduce_scatter_shared`](Self::reduce_scatter_shared); the handle returns the buffer.
    #[track_caller]
    pub fn reduce_scatter_shared_start<T: CollectiveElement>(
        &self,
        buffer: SharedBuffer<T>,
        op: ReduceOp,
    ) -> Pending<SharedBuffer<T>> {
        self.start(self.reduce_scatter_shared_of(buffer, op))
    }

    fn reduce_scatter_shared_of<T: CollectiveElement, B: BorrowMut<SharedBuffer<T>>>(
        &self,
        buffer: B,
        op: ReduceOp,
    ) -> Checked<impl Operate<B> + use<T, B>> {
        let length = buffer.borrow().len();
        let call = describe::<T>(Operation::ReduceScatterShared, length / self.size());
        self.on_shared(self.reduction(self.of_shards(call, "buffer", length)?, op)?, buffer)
    }

    /// Takes the buffer's memory for a call, which gets the buffer's name: by it the ranks compare that they mean the
    /// same.
    fn on_shared<T: CollectiveElement, B: BorrowMut<SharedBuffer<T>>>(
        &self,
        call: CallDescriptor,
        mut buffer: B,
    ) -> Checked<impl Operate<B> + use<T, B>> {
        let SharedBuffer { group, number, .. } = buffer.borrow();
        if !std::ptr::eq(group.as_ptr(), Arc::as_ptr(self.core())) {
            let what = "the buffer was not allocated by this group".to_string();
            return Err(self.refuse(&call, what));
        }
        let call = CallDescriptor {
            buffer: Some(*number),
            ..call
        };
        let memory = buffer.borrow_mut().take();
        checked(call, move |engine, call| {
            buffer.borrow_mut().memory = memory.in_call(engine, call)?;
            Ok(buffer)
        })
    }
}
