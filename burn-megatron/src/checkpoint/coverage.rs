//! Whether the parts of an array make up the array: each element in exactly one.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::region::{Region, Segment};

/// The first element that is not in exactly one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is in none.
    Missing {
        /// The element of the logical array, row-major.
        element: usize,
    },
    /// It is in two.
    Twice {
        /// The element of the logical array, row-major.
        element: usize,
        /// The two, as numbers of the list.
        parts: [usize; 2],
    },
}

/// Checks that `parts` hold each of the `logical_len` elements of an array exactly once.
///
/// All parts are walked at once in the order of the logical array, so that nothing is kept of them but one segment
/// each.
pub(super) fn check(logical_len: usize, parts: &[Region]) -> Result<(), Fault> {
    let mut walks: Vec<_> = parts.iter().map(Region::segments).collect();
    let mut next: BinaryHeap<Reverse<(usize, usize, usize)>> = BinaryHeap::with_capacity(parts.len());
    let entry = |segment: Segment, part: usize| Reverse((segment.logical, part, segment.length));
    for (part, walk) in walks.iter_mut().enumerate() {
        next.extend(walk.next().map(|segment| entry(segment, part)));
    }
    let (mut covered, mut last) = (0, 0);
    while let Some(Reverse((logical, part, length))) = next.pop() {
        if logical > covered {
            return Err(Fault::Missing { element: covered });
        }
        if logical < covered {
            // The segment before begins no later and ends at `covered`.
            return Err(Fault::Twice {
                element: logical,
                parts: [last, part],
            });
        }
        (covered, last) = (logical + length, part);
        next.extend(walks[part].next().map(|segment| entry(segment, part)));
    }
    if covered < logical_len {
        Err(Fault::Missing { element: covered })
    } else {
        Ok(())
    }
}

/// Returns the index of an element of an array of `shape`, as people write it: `[3, 0]`.
pub(super) fn unravel(element: usize, shape: &[usize]) -> Vec<usize> {
    let mut rest = element;
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|&size| {
            let place = rest % size.max(1);
            rest /= size.max(1);
            place
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::Placement;

    fn part(placement: &Placement, range: std::ops::Range<usize>) -> Region {
        Region::new(placement, range).unwrap()
    }

    #[test]
    fn columns_and_cut_boxes_cover_an_array() {
        let [left, right] = [0, 1].map(|index| Placement::shard(&[3, 4], 1, index, 2));
        let parts = [part(&left, 0..5), part(&right, 0..6), part(&left, 5..6)];
        assert_eq!(check(12, &parts), Ok(()));
    }

    #[test]
    fn the_first_fault_is_named() {
        let [left, right] = [0, 1].map(|index| Placement::shard(&[3, 4], 1, index, 2));
        let gap = [part(&left, 0..5), part(&right, 0..6)];
        assert_eq!(check(12, &gap), Err(Fault::Missing { element: 9 }));
        assert_eq!(unravel(9, &[3, 4]), [2, 1]);
        let end = [part(&left, 0..6), part(&right, 0..5)];
        assert_eq!(check(12, &end), Err(Fault::Missing { element: 11 }));
        let twice = [part(&left, 0..6), part(&right, 0..6), part(&right, 3..4)];
        let parts = [1, 2];
        assert_eq!(check(12, &twice), Err(Fault::Twice { element: 7, parts }));
        assert_eq!(check(12, &[]), Err(Fault::Missing { element: 0 }));
        assert_eq!(check(0, &[]), Ok(()));
    }
}
