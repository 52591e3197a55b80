//! [`GatherAhead`]: each fully sharded parameter is gathered while what comes before it is computed.
//!
//! The first pass gathers each parameter when an operation needs it, and learns the order; in each pass after that,
//! what takes one starts the gathering of the next. So those of the operation in use are whole, and the next one.
//! Where a pass needs another one than the pass before did, the one that was gathered is dropped, and the order is
//! learnt again: every rank sees the same operations, and so makes the same calls.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use burn_backend::Shape;
use burn_backend::tensor::FloatTensor;

use super::in_flight::{InFlight, is_one_collective};
use crate::collectives::CollectiveBackend;
use crate::sharded::kind::Kind;
use crate::sharded::mesh::Mesh;
use crate::sharded::placement::Placements;
use crate::sharded::traffic::in_operation;

/// This rank's part of each parameter, by number, and what of a pass has been gathered.
pub(in crate::sharded) struct GatherAhead<B: CollectiveBackend> {
    pass: Pass,
    mesh: Mesh,
    parameters: Vec<Parameter<B>>,
    /// Of the pass before.
    order: Vec<Gathered>,
    /// Of this pass.
    seen: Vec<Gathered>,
    /// The place in the order of what is needed next.
    next: usize,
    started: Option<(Gathered, InFlight<B>)>,
    /// By the numbers of tensors: the parameters that they are.
    numbers: HashMap<u64, usize>,
}

/// This rank's part of a parameter.
pub(in crate::sharded) struct Parameter<B: CollectiveBackend> {
    pub(in crate::sharded) shape: Shape,
    pub(in crate::sharded) places: Placements,
    pub(in crate::sharded) part: Box<dyn Fn() -> FloatTensor<B>>,
}

/// A parameter that was gathered, and where it then is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Gathered {
    number: usize,
    places: Placements,
}

/// A pass of a model. Another model, which is used inside this one's pass, has parameters of the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sharded) struct Pass(u64);

impl Pass {
    /// Returns a pass that is no other one.
    pub(in crate::sharded) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The order in which a pass gathered parameters, for the next one.
#[derive(Clone, Debug, Default)]
pub(in crate::sharded) struct GatherOrder(Vec<Gathered>);

thread_local! {
    /// That of the pass that runs on this thread.
    static CURRENT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Runs a pass whose parameters are gathered ahead in this order, and sets it to that of the pass.
pub(in crate::sharded) fn gathering_ahead<B: CollectiveBackend, T>(
    pass: Pass,
    mesh: &Mesh,
    parameters: Vec<Parameter<B>>,
    order: &mut GatherOrder,
    run: impl FnOnce() -> T,
) -> T {
    struct Restore(Option<Box<dyn Any>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CURRENT.set(self.0.take());
        }
    }
    let ahead = GatherAhead::<B> {
        pass,
        mesh: mesh.clone(),
        parameters,
        order: std::mem::take(&mut order.0),
        seen: Vec::new(),
        next: 0,
        started: None,
        numbers: HashMap::new(),
    };
    let restore = Restore(CURRENT.replace(Some(Box::new(ahead))));
    let result = run();
    let end = |ahead: &mut GatherAhead<B>| (std::mem::take(&mut ahead.seen), ahead.started.take());
    if let Some((seen, unused)) = with_current(end) {
        order.0 = seen;
        // Of a pass that was shorter than the one before.
        if let Some((_, unused)) = unused {
            unused.wait();
        }
    }
    drop(restore);
    result
}

fn with_current<B: CollectiveBackend, T>(run: impl FnOnce(&mut GatherAhead<B>) -> T) -> Option<T> {
    CURRENT.with_borrow_mut(|current| current.as_mut()?.downcast_mut::<GatherAhead<B>>().map(run))
}

/// Says that a tensor is a parameter of the model whose pass this is.
pub(in crate::sharded) fn name<B: CollectiveBackend>(pass: Pass, id: u64, number: usize) {
    with_current::<B, _>(|ahead| {
        if ahead.pass == pass {
            ahead.numbers.insert(id, number);
        }
    });
}

/// Returns a parameter that is gathered ahead, and starts the next; `None` if the tensor is none.
///
/// # Communication
/// The start of one all-gather, or of two where the order is another than that of the pass before.
#[track_caller]
pub(in crate::sharded) fn take<B: CollectiveBackend, K: Kind<B>>(
    id: u64,
    from: &Placements,
    to: &Placements,
) -> Option<K::Tensor> {
    let gathered = with_current::<B, _>(|ahead| ahead.take(id, from, to)).flatten()?;
    let gathered: Box<dyn Any> = Box::new(gathered);
    Some(*gathered.downcast().expect("a parameter is a float tensor"))
}

impl<B: CollectiveBackend> GatherAhead<B> {
    #[track_caller]
    fn take(&mut self, id: u64, from: &Placements, to: &Placements) -> Option<FloatTensor<B>> {
        let number = *self.numbers.get(&id)?;
        if !is_one_collective(&self.mesh, from, to) || self.parameters[number].places != *from {
            return None;
        }
        let wanted = Gathered { number, places: *to };
        self.seen.push(wanted);
        let rest = self.order.get(self.next..).unwrap_or_default();
        let skipped = rest.iter().position(|gathered| *gathered == wanted);
        self.next = skipped.map_or(self.order.len(), |skipped| self.next + skipped + 1);
        let flight = match self.started.take() {
            Some((gathered, flight)) if gathered == wanted => flight,
            Some((_, other)) => {
                other.wait();
                self.start(wanted)
            }
            None => self.start(wanted),
        };
        let gathered = flight.wait();
        if let Some(&next) = self.order.get(self.next) {
            self.started = Some((next, self.start(next)));
        }
        Some(gathered)
    }

    #[track_caller]
    fn start(&self, gathered: Gathered) -> InFlight<B> {
        let Parameter { shape, places, part } = &self.parameters[gathered.number];
        in_operation("gather_ahead", || {
            InFlight::start(part(), &self.mesh, shape, places, &gathered.places)
        })
    }
}
