//! Who is the first cause of an error: the notes of [`suspicions`](super::suspicions), followed from rank to rank.

use crate::launch::peer_failure::Suspicion;

/// What is said of a rank that is blamed because every rank that is left waits for another; then what it waits for.
const WAITS_TOO: &str = "it waits itself, and for ranks that wait: the calls of these ranks may not fit together";

/// Follows the notes from `rank`'s own to a rank that blames no other: a hung rank leaves no note, and one that is out
/// of step accuses itself. Where a path only leads back to ranks on it, the next one is taken; where all do, the result
/// is the end of the first.
pub(super) fn follow<E>(
    rank: usize,
    own: Vec<Suspicion>,
    mut note_of: impl FnMut(usize) -> Result<Vec<Suspicion>, E>,
) -> Result<Option<Suspicion>, E> {
    let first = own.first().cloned();
    if first.as_ref().is_some_and(|first| first.rank == rank) {
        return Ok(first);
    }
    let mut met = vec![rank];
    let mut dead_end = None;
    // The next to visit is the last.
    let mut suspects: Vec<Suspicion> = own.into_iter().rev().collect();
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
            dead_end.get_or_insert_with(|| Suspicion {
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

    fn failures(ranks: &[usize]) -> Vec<Suspicion> {
        ranks.iter().map(|&rank| Suspicion::example(rank)).collect()
    }

    /// The first cause for `rank`, where `notes[r]` is the note of rank r, and those that have none are not listed.
    ///
    /// # Panics
    /// A note is read twice: a search that runs in a circle ends so, too.
    fn found(rank: usize, notes: &[impl AsRef<[usize]>]) -> Option<Suspicion> {
        let note_of = |rank: usize| failures(notes.get(rank).map_or(&[], AsRef::as_ref));
        let mut read = vec![rank];
        let found = follow(rank, note_of(rank), |other| {
            assert!(!read.contains(&other), "the note of rank {other} was read twice");
            read.push(other);
            Ok::<_, Infallible>(note_of(other))
        });
        let Ok(found) = found;
        found
    }

    fn cause(notes: &[&[usize]]) -> Option<usize> {
        found(0, notes).map(|found| found.rank)
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
        let waits = format!("did not come; rank 1; {WAITS_TOO}: rank 0 did not come; rank 0");
        assert_eq!(found(0, &[[1], [0]]).unwrap().what, waits);
        assert!(!found(0, &[[1]]).unwrap().what.contains(WAITS_TOO));
    }

    /// The rank that blames no other to which the names lead first, each followed to its end before the next.
    fn first_that_blames_no_other(rank: usize, notes: &[Vec<usize>], met: &mut Vec<usize>) -> Option<usize> {
        notes[rank].iter().find_map(|&named| {
            if met.contains(&named) {
                return None;
            }
            met.push(named);
            let blames_no_other = notes[named].first().is_none_or(|first| *first == named);
            let mut its_own = || first_that_blames_no_other(named, notes, met);
            if blames_no_other { Some(named) } else { its_own() }
        })
    }

    proptest! {
        #[test]
        fn ranks_that_wait_for_one_that_hangs_all_find_it_in_whatever_order_they_ask(
            // Each rank waits for one before it, and the first for none.
            waits_for in prop::collection::vec(any::<prop::sample::Index>(), 1..16),
        ) {
            let waits_for = waits_for.iter().enumerate().map(|(before, index)| vec![index.index(before + 1)]);
            let notes: Vec<Vec<usize>> = [vec![]].into_iter().chain(waits_for).collect();
            for rank in 1..notes.len() {
                prop_assert_eq!(found(rank, &notes), Some(Suspicion::example(0)));
            }
        }

        #[test]
        fn of_ranks_that_hang_the_one_that_was_named_first_is_the_cause(
            lengths in prop::collection::vec(0_usize..4, 1..8),
            last in any::<prop::sample::Index>(),
        ) {
            // Rank 0 names the first ranks of chains, in an order that is not that of their numbers.
            let mut notes = vec![Vec::new()];
            for length in lengths {
                let first = notes.len();
                notes[0].push(first);
                (0..length).for_each(|_| notes.push(vec![notes.len() + 1]));
                notes.push(Vec::new());
            }
            let turn = last.index(notes[0].len());
            notes[0].rotate_left(turn);
            let mut end = notes[0][0];
            while let Some(next) = notes[end].first() {
                end = *next;
            }
            prop_assert_eq!(found(0, &notes), Some(Suspicion::example(end)));
        }

        #[test]
        fn every_accusation_ends_with_one_rank_and_one_that_waits_itself_only_if_all_do(
            notes in prop::collection::vec(prop::collection::vec(0_usize..8, 0..4), 8),
        ) {
            let found = found(0, &notes);
            let mut met = vec![0];
            let hangs = first_that_blames_no_other(0, &notes, &mut met);
            match (notes[0].first(), hangs) {
                (None, _) => prop_assert_eq!(found, None),
                (Some(0), _) => prop_assert_eq!(found, Some(Suspicion::example(0))),
                (Some(_), Some(rank)) => prop_assert_eq!(found, Some(Suspicion::example(rank))),
                // All that the names lead to wait for each other: one of them that was read, and what it waits for.
                (Some(_), None) => {
                    let found = found.expect("rank 0 has an error");
                    prop_assert!(found.rank != 0 && met.contains(&found.rank), "{found:?}");
                    prop_assert!(notes[found.rank].iter().all(|named| met.contains(named)), "{found:?}");
                    let waits_for = format!("{WAITS_TOO}: rank {} ", notes[found.rank][0]);
                    prop_assert!(found.what.contains(&waits_for), "{found:?}");
                }
            }
        }
    }
}
