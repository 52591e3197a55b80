//! Nodes that are led to something: to what receives a parameter's gradient in place of the graph, or has its values.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::LazyLock;

use burn_autodiff::NodeId;
use parking_lot::Mutex;

/// A parameter that is led to a sink or to a source, for as long as this is kept.
#[derive(Debug)]
pub struct GradientRedirect(Key);

/// A node, and the type of what it is led to.
type Key = (NodeId, TypeId);
type Sinks = HashMap<Key, Box<dyn Any + Send>>;

/// By the node of a weight, an `Arc<dyn WeightSink>` or an `Arc<dyn WeightSource>`; by that of a vector, what is
/// the same for vectors.
static SINKS: LazyLock<Mutex<Sinks>> = LazyLock::new(Mutex::default);

/// Leads a node to something, for as long as what is returned is kept.
pub(crate) fn lead<T: Any + Send>(node: NodeId, to: T) -> GradientRedirect {
    let key = (node, TypeId::of::<T>());
    SINKS.lock().insert(key, Box::new(to));
    GradientRedirect(key)
}

/// What of this type a node is led to.
pub(crate) fn led<T: Clone + 'static>(node: NodeId) -> Option<T> {
    SINKS
        .lock()
        .get(&(node, TypeId::of::<T>()))?
        .downcast_ref::<T>()
        .cloned()
}

impl Drop for GradientRedirect {
    fn drop(&mut self) {
        let sink = SINKS.lock().remove(&self.0);
        // Dropped after the lock is released.
        drop(sink);
    }
}
