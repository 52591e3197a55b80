//! The recorder: what every operation's results are, kept in the one-rank run, and compared with that in another.
//!
//! Each thread has its own, as each rank of a test is a thread. Operations hand their operands and results to it when
//! it is on; a program that is not compared pays one look at a flag for each operation.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::super::any_tensor::AnyTensor;
use super::super::traffic::{self, Phase};
use super::check::Check;
use super::difference::FirstDifference;
use super::recording::{Event, Name, Recording};
use super::seen::{Judged, Seen};

thread_local! {
    static IS_RECORDING: Cell<bool> = const { Cell::new(false) };
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

struct Recorder {
    mode: Mode,
    /// The names that are open.
    path: Vec<String>,
    /// Steps that have been judged.
    judged: usize,
    /// After how many of them it stops.
    last: usize,
}

enum Mode {
    Keep(Box<Recording>),
    Check(Box<Check>),
}

/// An operation's operands, seen before it takes them.
pub(in crate::sharded) struct Operands(Vec<Seen>);

pub(super) fn is_recording() -> bool {
    IS_RECORDING.get()
}

/// Sees the operands of an operation, if the recorder is on.
///
/// # Communication
/// That of reading those that are not known.
pub(in crate::sharded) fn operands(tensors: &[&dyn AnyTensor]) -> Option<Operands> {
    IS_RECORDING.get().then(|| {
        let seen = tensors.iter().enumerate().map(|(position, tensor)| {
            let is_read = with(|recorder| recorder.lacks(tensor.id(), position));
            see(*tensor, is_read)
        });
        Operands(seen.collect())
    })
}

/// Sees the results of an operation whose operands were seen.
///
/// # Communication
/// That of reading them.
pub(in crate::sharded) fn results<'a>(
    operation: &'static str,
    operands: Option<Operands>,
    tensors: impl FnOnce() -> Vec<&'a dyn AnyTensor>,
) {
    if let Some(Operands(operands)) = operands {
        let results = tensors().into_iter().map(|tensor| see(tensor, true)).collect();
        with(|recorder| recorder.record(operation, operands, results));
    }
}

fn see(tensor: &dyn AnyTensor, is_read: bool) -> Seen {
    Seen {
        id: tensor.id(),
        shape: tensor.operand().shape,
        places: placement(tensor),
        data: is_read.then(|| tensor.peek()),
    }
}

/// A tensor's placement on each axis, or that every rank has all of it.
pub(super) fn placement(tensor: &dyn AnyTensor) -> String {
    match tensor.mesh() {
        Some(mesh) => {
            let places = tensor.operand().places;
            let places = places[..mesh.shape().num_axes()].iter().map(ToString::to_string);
            places.collect::<Vec<_>>().join(" ")
        }
        None => "whole".into(),
    }
}

/// Sees a tensor as it is judged.
pub(super) fn observe(what: Judged, tensor: &dyn AnyTensor) {
    let phase = match what {
        Judged::Loss => Phase::Forward,
        Judged::Gradient | Judged::Parameter => Phase::Gradients,
    };
    traffic::in_phase(phase, || results(what.name(), operands(&[]), || vec![tensor]));
}

/// Says what a tensor of the one-rank run is.
pub(super) fn name(id: u64, name: impl FnOnce() -> Name) {
    if IS_RECORDING.get() {
        with(|recorder| {
            if let Mode::Keep(recording) = &mut recorder.mode {
                recording.name(id, name());
            }
        });
    }
}

/// Says that a step was judged; the recorder stops after the last one.
pub(super) fn end_step() {
    if IS_RECORDING.get() {
        let is_last = with(|recorder| {
            recorder.judged += 1;
            recorder.judged == recorder.last
        });
        IS_RECORDING.set(!is_last);
    }
}

pub(super) fn enter(name: String) {
    with(|recorder| recorder.path.push(name));
}

/// The recorder may have stopped inside a part.
pub(super) fn leave() {
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            recorder.path.pop();
        }
    });
}

/// Runs with a recorder that keeps what the operations of the first `last` steps compute.
pub(super) fn keep<T>(limit_bytes: usize, last: usize, run: impl FnOnce() -> T) -> (Recording, T) {
    let (mode, result) = recorded(Mode::Keep(Box::new(Recording::new(limit_bytes))), last, run);
    let Mode::Keep(mut recording) = mode else {
        unreachable!("the mode does not change")
    };
    recording.finish();
    (*recording, result)
}

/// Runs with a recorder that compares with another run.
pub(super) fn check<T>(
    reference: Rc<Recording>,
    tolerance: f64,
    last: usize,
    run: impl FnOnce() -> T,
) -> (Option<FirstDifference>, T) {
    let (mode, result) = recorded(Mode::Check(Box::new(Check::new(reference, tolerance))), last, run);
    let Mode::Check(check) = mode else {
        unreachable!("the mode does not change")
    };
    (check.finish(), result)
}

fn recorded<T>(mode: Mode, last: usize, run: impl FnOnce() -> T) -> (Mode, T) {
    /// Off again, even if the program panics.
    struct Off;
    impl Drop for Off {
        fn drop(&mut self) {
            IS_RECORDING.set(false);
            RECORDER.set(None);
        }
    }
    RECORDER.set(Some(Recorder {
        mode,
        path: Vec::new(),
        judged: 0,
        last,
    }));
    IS_RECORDING.set(true);
    let _off = Off;
    let result = run();
    let recorder = RECORDER.take().expect("it was set above");
    (recorder.mode, result)
}

fn with<T>(use_recorder: impl FnOnce(&mut Recorder) -> T) -> T {
    RECORDER.with_borrow_mut(|recorder| use_recorder(recorder.as_mut().expect("it is there while it records")))
}

impl Recorder {
    /// Whether the elements of an operand of the next operation are not known.
    fn lacks(&self, id: u64, position: usize) -> bool {
        match &self.mode {
            Mode::Keep(recording) => !recording.has(id),
            Mode::Check(check) => check.lacks(id, position),
        }
    }

    fn record(&mut self, operation: &'static str, operands: Vec<Seen>, results: Vec<Seen>) {
        let event = Event {
            operation,
            phase: traffic::phase(),
            module: self.path.join("."),
            judged: self.judged,
        };
        match &mut self.mode {
            Mode::Keep(recording) => recording.add(event, operands, results),
            Mode::Check(check) => check.add(event, operands, results),
        }
    }
}
