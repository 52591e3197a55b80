//! [`Checked`]: a call whose arguments have been checked, with what the engine does for it. The checks.

use super::ProcessGroup;
use crate::collectives::call::{CallDescriptor, Operation, ReduceOp};
use crate::collectives::element::CollectiveElement;
use crate::collectives::engines::engine::Engine;
use crate::collectives::error::CollectiveError;
use std::ops::Deref;

/// The elements of a caller: borrowed in a blocking call, owned in a started one.
pub(super) trait Buffer: Deref<Target = [<Self as Buffer>::Element]> {
    type Element: CollectiveElement;
}

impl<T: CollectiveElement, B: Deref<Target = [T]>> Buffer for B {
    type Element = T;
}

/// What the engine does for a call.
pub(in crate::collectives) trait Operate<R>:
    FnOnce(&dyn Engine, &CallDescriptor) -> Result<R, CollectiveError>
{
}

impl<R, F: FnOnce(&dyn Engine, &CallDescriptor) -> Result<R, CollectiveError>> Operate<R> for F {}

/// A call, to be run at once or started; or why its arguments are refused.
pub(in crate::collectives) type Checked<F> = Result<(CallDescriptor, F), CollectiveError>;

/// Returns a call whose arguments are right.
pub(in crate::collectives) fn checked<R, F>(call: CallDescriptor, operate: F) -> Checked<F>
where
    F: FnOnce(&dyn Engine, &CallDescriptor) -> Result<R, CollectiveError>,
{
    Ok((call, operate))
}

/// Returns the call without its number, which it gets when its turn comes.
pub fn describe<T: CollectiveElement>(operation: Operation, length: usize) -> CallDescriptor {
    CallDescriptor {
        sequence: 0,
        operation,
        element_type: T::ELEMENT_TYPE,
        length,
        peer: None,
        reduce_op: None,
        buffer: None,
    }
}

/// Each check returns the call with what it has checked.
impl ProcessGroup {
    #[doc(hidden)]
    pub fn reduction(&self, call: CallDescriptor, op: ReduceOp) -> Result<CallDescriptor, CollectiveError> {
        if op == ReduceOp::Mean && call.element_type.is_integer() {
            let what = format!("mean of {}: only sum and max of integers", call.element_type);
            return Err(self.refuse(&call, what));
        }
        let reduce_op = Some(op);
        Ok(CallDescriptor { reduce_op, ..call })
    }

    #[doc(hidden)]
    pub fn with_root(&self, call: CallDescriptor, root: usize) -> Result<CallDescriptor, CollectiveError> {
        if root >= self.size() {
            let what = format!("root {root}: expected less than {}", self.size());
            return Err(self.refuse(&call, what));
        }
        let peer = Some(root);
        Ok(CallDescriptor { peer, ..call })
    }

    #[doc(hidden)]
    pub fn transfer(&self, call: CallDescriptor, peer: usize) -> Result<CallDescriptor, CollectiveError> {
        if peer >= self.size() || peer == self.rank() {
            let (size, rank) = (self.size(), self.rank());
            let what = format!("peer {peer}: expected less than {size} and not this rank ({rank})");
            return Err(self.refuse(&call, what));
        }
        let peer = Some(peer);
        Ok(CallDescriptor { peer, ..call })
    }

    /// Checks that `whole`, the length of the buffer called `name`, is that of a shard for each rank.
    pub(in crate::collectives) fn of_shards(
        &self,
        call: CallDescriptor,
        name: &str,
        whole: usize,
    ) -> Result<CallDescriptor, CollectiveError> {
        let (size, shard) = (self.size(), call.length);
        if shard.checked_mul(size) == Some(whole) {
            return Ok(call);
        }
        let what = format!("{name} of length {whole}: expected {size} shards of length {shard}");
        Err(self.refuse(&call, what))
    }

    pub(in crate::collectives) fn refuse(&self, call: &CallDescriptor, what: String) -> CollectiveError {
        CollectiveError::InvalidArgument {
            group: self.label().to_string(),
            operation: call.operation.to_string(),
            what,
        }
    }
}
