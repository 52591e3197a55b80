//! Who is the first cause of an error: the notes of [`suspicions`](super::suspicions), followed from rank to rank.

use crate::launch::peer_failure::PeerFailure;

/// What is said of a rank that is blamed because every rank that is left waits for another; then what it waits for.
const WAITS_TOO: &str = "it waits itself, and for ranks that wait: the calls of these ranks may not fit together";

/// Follows the notes from `rank`'s own to a rank that blames no other: a hung rank leaves no note, and one that is out
/// of step accuses itself. Where a path only leads back to ranks on it, the next one is taken; where all do, the result
/// is the end of the first.
pub(super) fn follow<E>(
    rank: usize,
    own: Vec<PeerFailure>,
    mut note_of: impl FnMut(usize) -> Result<Vec<PeerFailure>, E>,
) -> Result<Option<PeerFailure>, E> {
    let first = own.first().cloned();
    if first.as_ref().is_some_and(|first| first.rank == rank) {
        return Ok(first);
    }
    let mut met = vec![rank];
    let mut dead_end = None;
    // The next to visit is the last.
    let mut suspects: Vec<PeerFailure> = own.into_iter().rev().collect();
    while let Some(suspect) = suspects.pop() {
        if met.contains(&suspect.rank) {
            continue;
        }
        met.push(suspect.rank);
        let note = note_of(suspect.rank)?;
        if note.first().is_none_or(|named| named.rank == suspect.rank) {
            return Ok(Some(suspect));
        }
        let before = suspects.len();
        let its_wait = note.first().map(|named| format!("rank {} {}", named.rank, named.what));
        suspects.extend(note.into_iter().rev().filter(|named| !met.contains(&named.rank)));
        if suspects.len() == before {
            dead_end.get_or_insert_with(|| PeerFailure {
                what: format!("{}; {WAITS_TOO}: {}", suspect.what, its_wait.unwrap_or_default()),
                ..suspect
            });
        }
    }
    Ok(dead_end.or(first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    fn failures(ranks: &[usize]) -> Vec<PeerFailure> {
        ranks.iter().map(|&rank| PeerFailure::example(rank)).collect()
    }

    /// The first cause for rank 0, where `notes[r]` is the note of rank r.
    fn cause(notes: &[&[usize]]) -> Option<usize> {
        let found = follow(0, failures(notes[0]), |rank| {
            Ok::<_, Infallible>(failures(notes.get(rank).copied().unwrap_or_default()))
        });
        let Ok(found) = found;
        found.map(|found| found.rank)
    }

    #[test]
    fn notes_are_followed_to_the_rank_that_has_left_none() {
        assert_eq!(cause(&[&[]]), None);
        assert_eq!(cause(&[&[1], &[2], &[3], &[]]), Some(3));
        // One that is out of step accuses itself, or is accused by the one that looks.
        assert_eq!(cause(&[&[1], &[1, 2], &[]]), Some(1));
        assert_eq!(cause(&[&[0, 1], &[]]), Some(0));
    }

    #[test]
    fn a_way_that_leads_back_is_left_for_the_next() {
        assert_eq!(cause(&[&[1], &[2, 3], &[1], &[]]), Some(3));
        assert_eq!(cause(&[&[1], &[0, 3], &[], &[]]), Some(3));
        assert_eq!(cause(&[&[1, 3], &[2], &[0, 1], &[]]), Some(3));
        // All wait for each other.
        assert_eq!(cause(&[&[1], &[2], &[0]]), Some(2));
        assert_eq!(cause(&[&[1], &[0]]), Some(1));
    }

    #[test]
    fn of_ranks_that_wait_for_each_other_it_is_said() {
        let what = |note: &[usize]| {
            let found = follow(0, failures(&[1]), |_| Ok::<_, Infallible>(failures(note)));
            let Ok(found) = found;
            found.unwrap().what
        };
        let waits = format!("did not come; rank 1; {WAITS_TOO}: rank 0 did not come; rank 0");
        assert_eq!(what(&[0]), waits);
        assert!(!what(&[]).contains(WAITS_TOO));
    }

    proptest! {
        #[test]
        fn ranks_that_wait_for_one_that_hangs_all_find_it_in_whatever_order_they_ask(
            // Each rank waits for one before it, and the first for none.
            waits_for in prop::collection::vec(any::<prop::sample::Index>(), 1..16),
        ) {
            let note_of = |rank: usize| match rank {
                0 => Vec::new(),
                _ => failures(&[waits_for[rank - 1].index(rank)]),
            };
            for rank in 1..=waits_for.len() {
                let Ok(found) = follow(rank, note_of(rank), |other| Ok::<_, Infallible>(note_of(other)));
                prop_assert_eq!(found, Some(PeerFailure::example(0)));
            }
        }

        #[test]
        fn every_accusation_ends_with_one_rank_that_was_named(
            notes in prop::collection::vec(prop::collection::vec(0_usize..8, 0..4), 8),
        ) {
            let mut read = vec![0];
            let note_of = |rank: usize| {
                read.push(rank);
                Ok::<_, Infallible>(failures(&notes[rank]))
            };
            let Ok(found) = follow(0, failures(&notes[0]), note_of);
            prop_assert_eq!(found.is_none(), notes[0].is_empty());
            if let Some(found) = found {
                prop_assert!(notes.iter().flatten().any(|&named| named == found.rank), "{found}");
            }
            let count = read.len();
            read.sort_unstable();
            read.dedup();
            prop_assert_eq!(read.len(), count, "a note was read twice");
        }
    }
}
