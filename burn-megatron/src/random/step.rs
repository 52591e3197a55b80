//! `CurrentStep`: the step that a program has named by `ParallelContext::set_step`, as converted modules read it.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{StepCoordinates, TokenMap};

/// The step under way. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct CurrentStep {
    seed: u64,
    named: Arc<Mutex<Named>>,
}

#[derive(Debug, Default)]
struct Named {
    /// How often a step has been named: 0 before the first time.
    count: u64,
    iteration: u64,
    samples: Vec<u64>,
}

/// The last words of a thread of the program on the step that it is in: the same on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SaidOfStep {
    /// By `ParallelContext::set_step`.
    pub iteration: Option<u64>,
    /// The global batch of which `ParallelContext::data_shard` or `shard_loader` has given this rank its part.
    pub batch: Option<[u64; 2]>,
}

thread_local! {
    /// By step. Another thread may be ahead of that which trains.
    static SAID: RefCell<Vec<(Weak<Mutex<Named>>, SaidOfStep)>> = const { RefCell::new(Vec::new()) };
}

impl CurrentStep {
    /// Returns a run without a step yet. `seed` is that of its dropout.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            named: Arc::default(),
        }
    }

    /// Names the step, and the samples of the next forward pass.
    pub fn set(&self, iteration: u64, samples: Vec<u64>) {
        let mut named = self.named.lock();
        *named = Named {
            count: named.count + 1,
            iteration,
            samples,
        };
        self.with_said(|said| said.iteration = Some(iteration));
    }

    /// Notes the global batch of which this rank has got its part.
    pub fn note_batch(&self, batch: &Range<usize>) {
        self.with_said(|said| said.batch = Some([batch.start, batch.end].map(|place| place as u64)));
    }

    /// Returns what this thread has said last.
    pub fn said(&self) -> SaidOfStep {
        self.with_said(|said| *said)
    }

    fn with_said<R>(&self, run: impl FnOnce(&mut SaidOfStep) -> R) -> R {
        SAID.with_borrow_mut(|all| {
            all.retain(|(step, _)| step.strong_count() > 0);
            let is_own = |(step, _): &(Weak<Mutex<Named>>, _)| std::ptr::eq(step.as_ptr(), Arc::as_ptr(&self.named));
            let place = all.iter().position(is_own).unwrap_or_else(|| {
                all.push((Arc::downgrade(&self.named), SaidOfStep::default()));
                all.len() - 1
            });
            run(&mut all[place].1)
        })
    }

    /// Returns the step's coordinates for samples of `seq_length` tokens; `None` before it has been named.
    pub fn coordinates(&self, seq_length: usize) -> Option<StepCoordinates> {
        let named = self.named.lock();
        (named.count > 0).then(|| self.of(&named, seq_length))
    }

    fn of(&self, named: &Named, seq_length: usize) -> StepCoordinates {
        StepCoordinates {
            seed: self.seed,
            iteration: named.iteration,
            tokens: TokenMap::of_samples(&named.samples, seq_length),
        }
    }
}

/// One module's view of the [`CurrentStep`]: each naming of the step is good for one forward pass of the module.
///
/// Clones of a module share the view, so a clone that a wrapper hands out counts as the module.
#[derive(Clone)]
pub(crate) struct ModuleStep {
    current: CurrentStep,
    module: String,
    last_used: Arc<AtomicU64>,
}

impl ModuleStep {
    /// Returns the view of the module called `module`.
    pub fn new(current: &CurrentStep, module: String) -> Self {
        Self {
            current: current.clone(),
            module,
            last_used: Arc::default(),
        }
    }

    /// Returns the coordinates of a forward pass of `batch` samples of `seq_length` tokens.
    ///
    /// # Panics
    /// When no step has been named, when the module has used this naming of it, or it names other samples than `batch`.
    pub fn take(&self, batch: usize, seq_length: usize) -> StepCoordinates {
        let named = self.current.named.lock();
        let module = &self.module;
        assert!(
            named.count > 0,
            "{module}: an active dropout does not know its step; call ParallelContext::set_step(iteration, samples) \
             before each forward pass, or give the input its coordinates"
        );
        assert!(
            named.samples.len() == batch,
            "{module}: ParallelContext::set_step named {} samples, the input has {batch}",
            named.samples.len()
        );
        let last = self.last_used.swap(named.count, Ordering::Relaxed);
        assert!(
            last != named.count,
            "{module}: a second forward pass at the same coordinates, iteration {}, would drop the same elements; call \
             ParallelContext::set_step(iteration, samples) before each forward pass, or give the input its coordinates",
            named.iteration
        );
        self.current.of(&named, seq_length)
    }
}

impl fmt::Debug for ModuleStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Part of a module, which prints in a line or two.
        write!(formatter, "the step of {}", self.module)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> (CurrentStep, ModuleStep) {
        let step = CurrentStep::new(7);
        (step.clone(), ModuleStep::new(&step, "encoder".to_owned()))
    }

    #[test]
    fn a_named_step_gives_the_coordinates_of_its_samples() {
        let (step, module) = view();
        assert_eq!(step.coordinates(3), None);
        step.set(4, vec![8, 9]);
        let expected = StepCoordinates {
            seed: 7,
            iteration: 4,
            tokens: TokenMap::of_samples(&[8, 9], 3),
        };
        assert_eq!(module.take(2, 3), expected);
        assert_eq!(step.coordinates(3), Some(expected));
    }

    #[test]
    #[should_panic(expected = "encoder: an active dropout does not know its step")]
    fn a_step_that_is_not_named_is_refused() {
        view().1.take(2, 3);
    }

    #[test]
    #[should_panic(expected = "encoder: a second forward pass at the same coordinates, iteration 4")]
    fn a_naming_is_good_for_one_pass_of_a_module_and_its_clones() {
        let (step, module) = view();
        step.set(4, vec![8]);
        ModuleStep::new(&step, "decoder".to_owned()).take(1, 3);
        module.clone().take(1, 3);
        module.take(1, 3);
    }

    #[test]
    #[should_panic(expected = "encoder: ParallelContext::set_step named 2 samples, the input has 3")]
    fn another_number_of_samples_is_refused() {
        let (step, module) = view();
        step.set(4, vec![8, 9]);
        module.take(3, 3);
    }
}
