//! Rows shared out over rayon's threads in blocks; each block owns its rows of what is written.
//!
//! Blocks follow from the shape alone. What blocks return comes back in their order, so that sums over rows, made of
//! the blocks' sums in order, are the same for any number of threads.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rayon::Scope;

use super::cores::{current_core, leave_core};
use super::lanes::Destination;

/// Fewer elements than this are not worth a task of their own: at a few bytes a nanosecond, they take microseconds.
const MIN_ELEMENTS: usize = 16 * 1024;
/// More blocks than this keep no more threads busy; each may hold sums that are then added one after the other.
const MAX_BLOCKS: usize = 256;

/// Something with rows that can be cut between two of them.
pub(crate) trait Split: Send + Sized {
    /// The first `rows` rows, and the others.
    fn split(self, rows: usize) -> (Self, Self);
}

/// Elements in rows of `columns` columns.
pub(crate) struct Rows<V> {
    pub values: V,
    pub columns: usize,
}

impl<'a, T> Rows<&'a mut [T]> {
    pub fn new(values: &'a mut [T], columns: usize) -> Self {
        Self { values, columns }
    }
}

impl<T: Send> Split for Rows<&mut [T]> {
    #[inline(always)]
    fn split(self, rows: usize) -> (Self, Self) {
        let columns = self.columns;
        let (values, rest) = self.values.split_at_mut(rows * columns);
        (Self { values, columns }, Self { values: rest, columns })
    }
}

impl<T: Copy + Send + Sync> Split for Rows<Destination<'_, T>> {
    #[inline(always)]
    fn split(self, rows: usize) -> (Self, Self) {
        let columns = self.columns;
        let (values, rest) = self.values.split(rows * columns);
        (Self { values, columns }, Self { values: rest, columns })
    }
}

impl<P: Split> Split for Option<P> {
    #[inline(always)]
    fn split(self, rows: usize) -> (Self, Self) {
        self.map(
            #[inline(always)]
            |part| part.split(rows),
        )
        .unzip()
    }
}

macro_rules! split_tuple {
    ($($part:ident)*) => {
        impl<$($part: Split),*> Split for ($($part,)*) {
            #[inline(always)]
            #[allow(non_snake_case, unused_variables, clippy::unused_unit)]
            fn split(self, rows: usize) -> (Self, Self) {
                let ($($part,)*) = self;
                $(let $part = $part.split(rows);)*
                (($($part.0,)*), ($($part.1,)*))
            }
        }
    };
}

split_tuple!();
split_tuple!(A B);
split_tuple!(A B C);
split_tuple!(A B C D);

/// The rows of a block, for a shape.
fn rows_of_a_block([rows, columns]: [usize; 2]) -> usize {
    let worth_it = MIN_ELEMENTS.div_ceil(columns.max(1));
    worth_it.max(rows.div_ceil(MAX_BLOCKS)).max(1)
}

/// Runs a task for each block of rows, with the block's numbers and its rows of `parts`; returns what they return, in
/// the blocks' order.
pub(crate) fn in_blocks<P: Split, T: Send>(
    shape: [usize; 2],
    parts: P,
    task: impl Fn(Range<usize>, P) -> T + Sync,
) -> Vec<T> {
    let (rows, step) = (shape[0], rows_of_a_block(shape));
    if rows <= step {
        return if rows == 0 {
            Vec::new()
        } else {
            vec![task(0..rows, parts)]
        };
    }
    let mut blocks = Vec::with_capacity(rows.div_ceil(step));
    let mut rest = parts;
    for start in (0..rows).step_by(step) {
        let end = rows.min(start + step);
        let (block, others) = rest.split(end - start);
        blocks.push((start..end, block));
        rest = others;
    }
    let blocks: Vec<Mutex<Option<_>>> = blocks.into_iter().map(|block| Mutex::new(Some(block))).collect();
    in_tasks(blocks.len(), |number| {
        let block = blocks[number].lock().take();
        let (range, block) = block.expect("each task runs once");
        task(range, block)
    })
}

/// Runs tasks by their numbers on rayon's threads; returns what they return, in the order of the numbers.
pub(crate) fn in_tasks<T: Send>(count: usize, task: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let results: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    share_out(count, &|number| {
        let result = task(number);
        *results[number].lock() = Some(result);
    });
    let result = |slot: Mutex<Option<T>>| slot.into_inner();
    results.into_iter().filter_map(result).collect()
}

/// Runs tasks by their numbers on the calling thread and on rayon's other threads.
///
/// The calling thread takes part: were it to hand over to two threads and sleep, Linux would often place both on the
/// core that is idle at that moment, and leave its own idle for milliseconds. For a like reason helpers leave its core.
///
/// Not generic: rayon's part, compiled for each operation and element type, was a third of this crate's code.
pub(crate) fn share_out(count: usize, task: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        numbers.take_while(|&number| number < count).for_each(task);
    };
    let helpers = rayon::current_num_threads().min(count).saturating_sub(1);
    if helpers == 0 {
        return work();
    }
    let core = current_core();
    let help = || {
        leave_core(core);
        work();
    };
    rayon::in_place_scope(|scope| {
        call_helpers(scope, helpers, &help);
        work();
    });
}

/// Has `helpers` other threads help. Each calls some of the others first, so that all are awake soon.
fn call_helpers<'scope>(scope: &Scope<'scope>, mut helpers: usize, help: &'scope (dyn Fn() + Sync)) {
    while helpers > 0 {
        let others = (helpers - 1) / 2;
        scope.spawn(move |scope| {
            call_helpers(scope, others, help);
            help();
        });
        helpers -= others + 1;
    }
}

/// Calls a function for each row of a block, with the row's number and its part of `parts`.
#[inline(always)]
pub(crate) fn each_row<P: Split>(range: Range<usize>, parts: P, mut function: impl FnMut(usize, P)) {
    let mut rest = parts;
    for row in range {
        let (part, others) = rest.split(1);
        rest = others;
        function(row, part);
    }
}

/// Memory for an output that is written once, without being cleared first.
pub(crate) fn uninit<T>(count: usize) -> Box<[MaybeUninit<T>]> {
    Box::new_uninit_slice(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_run_once_each_on_any_number_of_threads() {
        for threads in [1, 2, 3, 8, 13] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("threads start").install(|| {
                for count in [0, 1, 2, 5, 100] {
                    let runs: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                    share_out(count, &|number| {
                        runs[number].fetch_add(1, Ordering::Relaxed);
                    });
                    assert!(runs.into_iter().all(|runs| runs.into_inner() == 1));
                }
            });
        }
    }

    #[test]
    fn blocks_cover_all_rows_once_and_in_order() {
        for shape @ [rows, columns] in [[0, 5], [1, 5], [1000, 384], [100_000, 3], [7, 0], [3, 100_000]] {
            let mut values = vec![0u32; rows * columns];
            let mut marks = vec![0u32; rows];
            let parts = (Rows::new(&mut values, columns), Some(Rows::new(&mut marks, 1)));
            let ranges = in_blocks(shape, parts, |range, parts| {
                each_row(range.clone(), parts, |row, (values, marks)| {
                    values.values.fill(row as u32);
                    marks.expect("given").values[0] += row as u32 + 1;
                });
                range
            });
            assert!(ranges.len() <= MAX_BLOCKS);
            let numbers: Vec<usize> = ranges.into_iter().flatten().collect();
            assert_eq!(numbers, (0..rows).collect::<Vec<_>>());
            assert!(marks.iter().enumerate().all(|(row, &mark)| mark == row as u32 + 1));
            let is_filled = |(index, &value): (usize, &u32)| value == (index / columns) as u32;
            assert!(values.iter().enumerate().all(is_filled));
        }
    }
}
