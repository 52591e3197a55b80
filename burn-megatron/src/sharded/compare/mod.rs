//! [`compare`]: whether one's own training program computes in a layout what it does on one rank, and where not.
//!
//! The program runs without a mesh on every rank: that is the one-rank run. Then it runs in each layout. Losses, every
//! gradient and the parameters after each step are judged as `compare_sharding` judges those of the bundled models.
//! Where they differ, both run again with a recorder on, which all operations pass: the n-th operation's tensors are
//! compared with those of the n-th in the one-rank run, and the first that differs is named.
//!
//! | file | what it holds |
//! |---|---|
//! | `config`, `error`, `comparison` | settings and layouts; what goes wrong; what comes out |
//! | `run`, `training` | what a program gets and hands over; the plainest program |
//! | `judgement` | losses, gradients and parameters against those of one rank |
//! | `recorder` | what operations compute |
//! | `recording`, `kept` | the one-rank run's operations and arrays |
//! | `check`, `difference` | those of another run against them; the first that differs |
//! | `mark` | names for parts of a program |
//! | `exchange`, `give_up` | what ranks have found, on all of them; an error of one, on all of them |
//!
//! **Why operations can be compared by number.** Both runs are one program, and an operation of the backend is one of
//! the whole job, however its tensors are placed. burn's backward pass is in the same order, too: it follows the graph
//! from the loss by each step's list of parents, and no order depends on an address or on a hash. An operation that is
//! another one is the first difference.
//!
//! **Why the first difference is the culprit.** A result counts as different if it is beyond the tolerance, and a
//! hundred times farther from the one-rank run's than the worst of its operands; where terms cancel, farther than ten
//! times that of the largest operand. Rounding grows from operation to operation, and a parameter without a true
//! gradient has nothing else; a fault makes right operands into a wrong result.

mod check;
mod comparison;
mod config;
mod difference;
mod error;
mod exchange;
#[cfg(test)]
pub(super) mod faults;
mod give_up;
mod judgement;
mod kept;
mod mark;
pub(super) mod recorder;
mod recording;
mod run;
mod seen;
#[cfg(test)]
mod tests;
mod training;

use std::rc::Rc;

use burn::module::Module;
use burn::tensor::{DType, Device};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use comparison::Comparison;
pub use config::{CompareConfig, Layout, Trace};
pub use difference::{FirstDifference, OperandState, What};
pub use error::CompareError;
pub use judgement::Judgement;
pub use mark::mark;
pub use recording::Stage;
pub use run::Run;
pub use training::training;

use super::agreement::given;
use super::movement::redistribute::forget_gathered;
use crate::collectives::catch_collective_error;
use crate::parity::Tolerance;
use give_up::{message_of, or_give_up};
use judgement::{Bench, Outcome};
use recording::Recording;
use run::Task;

/// Runs a program on one rank and in each layout, and returns how they compare, the same on every rank.
///
/// `program` is a training loop of a few steps. It makes a new model on the device, places it with [`Run::parallelize`]
/// and its batches with [`Run::distribute`], and calls [`Run::judge`] in each step; it returns the model. [`training`]
/// is one.
/// Every rank has the model and its gradients whole, in f64, for each step of the one-rank run. burn's generator
/// is left as the last run has left it: reseed it before draws that must not depend on that.
///
/// # Communication
/// What the program needs, after the one-rank run the errors of all ranks, and per step of a layout an all-gather of
/// each gradient and parameter that is cut. When operations are recorded, one of each operation's results.
///
/// # Errors
/// When the program fails, does not compute the same twice, judges no step, or judges other steps in a layout; when it
/// judges a loss of several elements, or one of a type without a tolerance (see [`CompareConfig::with_tolerance`]);
/// when a collective fails. What fails on one rank fails on all of the layout's mesh: the others return the error of
/// that rank, and do not wait for it, wherever they are. An error in a layout ends the groups of its mesh
/// ([`ProcessGroup::give_up`]): they take no further calls. A difference is no error: see [`Comparison::into_result`].
///
/// [`ProcessGroup::give_up`]: crate::collectives::ProcessGroup::give_up
///
/// # Example
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::prelude::*;
/// use burn_flex::{Flex, FlexDevice};
/// use burn_megatron::prelude::*;
/// use burn_megatron::sharded::{AxisRole, CompareConfig, Layout, Mesh, Plan, compare, device, training};
///
/// fn main() -> std::process::ExitCode {
///     burn_megatron::run(1, check)
/// }
///
/// fn check(world: &World) -> Result<(), Box<dyn std::error::Error>> {
///     let mesh = Mesh::of(&ParallelConfig::new().init(world)?)?;
///     let layouts = [Layout::new("tp", &mesh, Plan::new().shard("weight", AxisRole::Tensor, 1))];
///     let batches = [1.0, 2.0, 3.0];
///     let program = training(
///         &batches,
///         |device| LinearConfig::new(4, 2).init(device),
///         |model: &Linear, &scale, run| {
///             let input = Tensor::<2>::ones([8, 4], run.device()) * scale;
///             model.forward(run.distribute(input, AxisRole::Data, 0)).powi_scalar(2).mean()
///         },
///     );
///     let device = device::<Flex>(FlexDevice).autodiff();
///     for comparison in compare(&CompareConfig::new(), &layouts, &device, program)? {
///         println!("{}", comparison.into_result()?);
///     }
///     Ok(())
/// }
/// ```
pub fn compare<M: Module, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    config: &CompareConfig,
    layouts: &[Layout],
    device: &Device,
    program: impl Fn(&mut Run) -> Result<M, E>,
) -> Result<Vec<Comparison>, CompareError> {
    let comparer = Comparer {
        config,
        device,
        start: &|run: &mut Run| {
            device.seed(config.seed);
            forget_gathered();
            let name = named(run.layout());
            let ended = catch_collective_error(|| {
                let model = given::left_out(|| program(run));
                let model = model.map_err(|error| CompareError::of_program(error.into(), name.clone()))?;
                run.check_steps()?;
                run.end(&model);
                Ok(())
            });
            ended.map_err(|source| CompareError::Collective {
                run: name,
                source: Box::new(source),
            })?
        },
    };
    comparer.compare(layouts)
}

/// A comparison at work.
struct Comparer<'a> {
    config: &'a CompareConfig,
    device: &'a Device,
    start: &'a dyn Fn(&mut Run) -> Result<(), CompareError>,
}

impl Comparer<'_> {
    fn compare(&self, layouts: &[Layout]) -> Result<Vec<Comparison>, CompareError> {
        let (reference, dtype, tolerance) = on_all_ranks(layouts, self.run_on_one_rank())?;
        let mut recorded = None;
        layouts
            .iter()
            .map(|layout| {
                let bench = Bench::new(tolerance, dtype == DType::F64, &reference);
                or_give_up(&layout.mesh, || {
                    self.compare_layout(layout, &reference, bench, &mut recorded)
                })
            })
            .collect()
    }

    /// Compares a run in a layout. `recorded` is the recording of the one-rank run, and of how many of its steps.
    fn compare_layout(
        &self,
        layout: &Layout,
        reference: &Outcome,
        bench: Bench,
        recorded: &mut Option<(usize, Rc<Recording>)>,
    ) -> Result<Comparison, CompareError> {
        let tolerance = bench.tolerance();
        let mut run = Run::new(Some(layout), self.device, Task::Judge { reference, bench });
        (self.start)(&mut run)?;
        let Task::Judge { bench, .. } = run.into_task() else {
            unreachable!("a run keeps its task")
        };
        let mut comparison = agreed(
            layout,
            Comparison {
                layout: layout.name.clone(),
                judgement: bench.judgement(),
                rank: exchange::own_rank(&layout.mesh),
                is_traced: false,
                first: None,
                num_sketches: 0,
            },
        )?;
        let until = match (self.config.trace, comparison.judgement.first_failing_step) {
            (Trace::Never, _) | (Trace::OnFailure, None) => None,
            (Trace::Always, None) => Some(usize::MAX),
            (_, Some(step)) => Some(step),
        };
        if let Some(until) = until {
            let recording = match recorded.take() {
                Some((steps, recording)) if steps >= until => (steps, recording),
                _ => (until, Rc::new(self.record(reference, until)?)),
            };
            self.trace(layout, reference, &recording, tolerance, &mut comparison)?;
            *recorded = Some(recording);
        }
        Ok(comparison)
    }

    /// Returns what the one-rank run computes, the type of its loss, and the tolerance.
    fn run_on_one_rank(&self) -> Result<(Outcome, DType, Tolerance), CompareError> {
        let mut run = Run::new(None, self.device, Task::Keep(Outcome::default()));
        (self.start)(&mut run)?;
        let dtype = run.dtype().ok_or(CompareError::NoSteps)?;
        let Task::Keep(reference) = run.into_task() else {
            unreachable!("a run keeps its task")
        };
        let tolerance = match (self.config.tolerance, dtype) {
            (Some(tolerance), _) => tolerance,
            (None, DType::F64 | DType::F32) => Tolerance::of(dtype),
            (None, other) => return Err(CompareError::Tolerance(other)),
        };
        Ok((reference, dtype, tolerance))
    }

    /// Runs on one rank, and keeps what the operations of the first steps compute.
    fn record(&self, reference: &Outcome, until: usize) -> Result<Recording, CompareError> {
        let mut run = Run::new(None, self.device, Task::Record { reference });
        let (recording, ended) = recorder::keep(self.config.trace_bytes, until, || (self.start)(&mut run));
        ended.map(|()| recording)
    }

    /// Runs in the layout, and compares what operations compute.
    fn trace(
        &self,
        layout: &Layout,
        reference: &Outcome,
        (until, recording): &(usize, Rc<Recording>),
        tolerance: Tolerance,
        comparison: &mut Comparison,
    ) -> Result<(), CompareError> {
        let mut run = Run::new(Some(layout), self.device, Task::Record { reference });
        let start = || (self.start)(&mut run);
        // A parameter without a true gradient has rounding alone: in 16 bits that may be all that gradients are
        // allowed. Parameters are judged without it, in f32 ten times as closely.
        let allowed = tolerance.gradient.min(10.0 * tolerance.parameter);
        let (first, ended) = recorder::check(recording.clone(), allowed, *until, start);
        ended?;
        let own = first.map(|first| FirstDifference {
            rank: exchange::own_rank(&layout.mesh),
            ..first
        });
        let all = all_of(layout, own)?;
        // What rounding has become is of interest only where it breaks parity.
        let is_equal = comparison.is_equal();
        let found = all
            .into_iter()
            .flatten()
            .filter(|first| !(is_equal && first.is_explained));
        // Where one rank has another operand, all may have another result.
        comparison.first = found.min_by_key(|first| {
            let is_result = matches!(first.what, What::Result { .. });
            (first.is_explained, first.number, is_result, first.rank)
        });
        comparison.is_traced = true;
        comparison.num_sketches = recording.num_sketches;
        Ok(())
    }
}

/// The comparison of the rank that saw the first failure, on all ranks.
fn agreed(layout: &Layout, own: Comparison) -> Result<Comparison, CompareError> {
    let all = all_of(layout, own)?.into_iter();
    let first = all.min_by_key(|comparison| {
        (
            comparison.judgement.first_failing_step.unwrap_or(usize::MAX),
            comparison.rank,
        )
    });
    Ok(first.expect("this rank's is one of them"))
}

/// Returns what this rank has, or the error of the lowest rank of the layouts' meshes that has one: the one-rank run
/// has no collectives, so the other ranks would wait for a rank that has failed in it.
fn on_all_ranks<T>(layouts: &[Layout], own: Result<T, CompareError>) -> Result<T, CompareError> {
    // The other ranks see that a collective failed, too, and no other would come through.
    if matches!(own, Err(CompareError::Collective { .. })) {
        return own;
    }
    let own_message = own.as_ref().err().map(message_of);
    let mut lowest = None;
    for layout in layouts {
        let own_failure = own_message
            .clone()
            .map(|message| (exchange::own_rank(&layout.mesh), message));
        let known = own_failure.into_iter().chain(lowest).min();
        lowest = match all_of(layout, known) {
            Ok(all) => all.into_iter().flatten().min(),
            // This rank's own error says more.
            Err(error) => return own.and(Err(error)),
        };
    }
    match (own, lowest) {
        (own, None) => own,
        // What all ranks see is every rank's own.
        (Err(error), Some((_, message))) if own_message.as_ref() == Some(&message) => Err(error),
        (_, Some((rank, message))) => Err(CompareError::OtherRank { rank, message }),
    }
}

fn all_of<T: Serialize + DeserializeOwned>(layout: &Layout, own: T) -> Result<Vec<T>, CompareError> {
    exchange::exchange(&layout.mesh, own).map_err(|source| CompareError::Collective {
        run: named(Some(&layout.name)),
        source: Box::new(source),
    })
}

/// A run in words, by its layout's name.
fn named(layout: Option<&str>) -> String {
    match layout {
        Some(name) => format!("in {name}"),
        None => "on one rank".into(),
    }
}
