//! [`Suspicions`]: whom this rank waits for, or holds responsible for an error, and where the other ranks read it.
//!
//! `collectives` enters long waits and the first error; `failure` follows the notes from rank to rank when a rank ends
//! with an error, since a rank that did not come may itself wait for a third.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::states::accuse;
use crate::launch::error::LaunchError;
use crate::launch::lock;
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::Store;

/// Ranks that a note names at most, and waits that stay in the list after they have failed.
const NAMED_RANKS: usize = 8;

/// What is said of a rank that is blamed because every rank that is left waits for another; then what it waits for.
const WAITS_TOO: &str = "it waits itself, and for ranks that wait: the calls of these ranks may not fit together";

/// What this rank notes of other ranks. Clones share one list; cheap to clone.
#[derive(Clone)]
pub(crate) struct Suspicions {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    rank: usize,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    /// Whom the first error of this rank accuses.
    accused: Option<PeerFailure>,
    /// By the number of the wait.
    waits: BTreeMap<u64, LongWait>,
    next_number: u64,
    /// The note as the store has it; empty for none.
    published: Vec<PeerFailure>,
    is_publishing: bool,
}

struct LongWait {
    /// When it began, or something moved.
    since: Instant,
    missing: Vec<PeerFailure>,
    is_kept: bool,
}

impl List {
    /// Returns what the other ranks shall read: the first error, then the waits, the oldest first, each rank once.
    fn note(&self) -> Vec<PeerFailure> {
        let mut waits: Vec<_> = self.waits.values().collect();
        waits.sort_by_key(|wait| wait.since);
        let mut note: Vec<PeerFailure> = Vec::new();
        for named in self.accused.iter().chain(waits.iter().flat_map(|wait| &wait.missing)) {
            if note.len() == NAMED_RANKS {
                break;
            }
            if note.iter().all(|earlier| earlier.rank != named.rank) {
                note.push(named.clone());
            }
        }
        note
    }
}

impl Suspicions {
    /// Returns an empty list of the rank `rank`, to be read in `store`.
    pub(in crate::launch) fn new(store: Store, rank: usize) -> Self {
        let list = Mutex::default();
        Self {
            inner: Arc::new(Inner { store, rank, list }),
        }
    }

    /// Where the notes are.
    pub(in crate::launch) fn store(&self) -> &Store {
        &self.inner.store
    }

    /// Notes whom this rank holds responsible for an error that it met; the first one stays.
    ///
    /// Raises nothing: a program may get over the error. One that does not ends with
    /// [`report_and_exit`](crate::launch::report_and_exit), which looks at it.
    pub(crate) fn accuse(&self, suspicion: PeerFailure) {
        accuse(&mut lock(&self.inner.list).accused, &suspicion);
        self.publish();
    }

    /// Enters a wait that has gone on since `since`, for the ranks `missing`; returns its number.
    pub(crate) fn enter(&self, since: Instant, missing: Vec<PeerFailure>) -> u64 {
        let number = {
            let mut list = lock(&self.inner.list);
            let number = list.next_number;
            list.next_number += 1;
            let wait = LongWait {
                since,
                missing: named(missing),
                is_kept: false,
            };
            list.waits.insert(number, wait);
            number
        };
        self.publish();
        number
    }

    /// Notes that a wait is for other ranks now.
    pub(crate) fn move_to(&self, number: u64, missing: Vec<PeerFailure>) {
        self.change(number, |wait| wait.missing = named(missing));
    }

    /// Notes that something has moved in a wait: others are older now.
    pub(crate) fn renew(&self, number: u64) {
        self.change(number, |wait| wait.since = Instant::now());
    }

    /// Notes that a wait has failed: it stays in the list.
    pub(crate) fn keep(&self, number: u64) {
        let mut list = lock(&self.inner.list);
        // A program that gets over one error after the other does not collect them.
        if list.waits.values().filter(|wait| wait.is_kept).count() == NAMED_RANKS {
            drop(list);
            self.withdraw(number);
        } else if let Some(wait) = list.waits.get_mut(&number) {
            wait.is_kept = true;
        }
    }

    /// Removes a wait, which is over.
    pub(crate) fn withdraw(&self, number: u64) {
        lock(&self.inner.list).waits.remove(&number);
        self.publish();
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut LongWait)) {
        if let Some(wait) = lock(&self.inner.list).waits.get_mut(&number) {
            change(wait);
        }
        self.publish();
    }

    /// Brings the note in the store up to date. Where a thread is at it already, that one does: no wait shall be held
    /// up by another's talk with the store.
    fn publish(&self) {
        let mut list = lock(&self.inner.list);
        if list.is_publishing {
            return;
        }
        list.is_publishing = true;
        loop {
            let note = list.note();
            if note == list.published {
                break;
            }
            list.published.clone_from(&note);
            drop(list);
            self.write(&note);
            list = lock(&self.inner.list);
        }
        list.is_publishing = false;
    }

    fn write(&self, note: &[PeerFailure]) {
        let Inner { store, rank, .. } = &*self.inner;
        let key = note_key(*rank);
        let result = match note {
            [] => store.remove_note(&key),
            _ => store.leave_note(&key, &serde_json::to_vec(note).expect("failures are plain text")),
        };
        // Only makes a message better: its loss must not hide the error that is on its way.
        if let Err(error) = result {
            tracing::debug!(%error, "cannot note a suspicion");
        }
    }

    /// Returns who is the first cause of this rank's error, should it be another rank's doing; looks for each note for
    /// `limit` at most.
    ///
    /// # Errors
    /// The failure that the store knows already.
    pub(crate) fn first_cause(&self, limit: Duration) -> Result<Option<PeerFailure>, PeerFailure> {
        let Inner { store, rank, list } = &*self.inner;
        let own = {
            let list = lock(list);
            match list.accused {
                Some(_) => list.note(),
                None => return Ok(None),
            }
        };
        follow(*rank, own, |suspect| match store.read_note(&note_key(suspect), limit) {
            Ok(note) => Ok(serde_json::from_slice(&note).unwrap_or_default()),
            Err(LaunchError::PeerFailed(known)) => Err(known),
            Err(_) => Ok(Vec::new()),
        })
    }
}

impl fmt::Debug for Suspicions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Suspicions")
            .field("note", &lock(&self.inner.list).note())
            .finish_non_exhaustive()
    }
}

fn named(mut missing: Vec<PeerFailure>) -> Vec<PeerFailure> {
    missing.truncate(NAMED_RANKS);
    missing
}

/// The key of the store under which a rank's note is.
pub(crate) fn note_key(rank: usize) -> String {
    format!("suspicion/{rank}")
}

/// Follows the notes from `rank`'s own to a rank that blames no other: a hung rank leaves no note, and one that is out
/// of step accuses itself. Where a path only leads back to ranks on it, the next one is taken; where all do, the result
/// is the end of the first.
fn follow<E>(
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
    use std::convert::Infallible;

    fn failure(rank: usize) -> PeerFailure {
        PeerFailure {
            rank,
            host: "node/boot".into(),
            what: format!("did not come; rank {rank}"),
        }
    }

    fn failures(ranks: &[usize]) -> Vec<PeerFailure> {
        ranks.iter().map(|&rank| failure(rank)).collect()
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

    fn ranks_in(store: &Store, rank: usize) -> Vec<usize> {
        match store.read_note(&note_key(rank), Duration::ZERO) {
            Ok(note) => {
                let note: Vec<PeerFailure> = serde_json::from_slice(&note).unwrap();
                note.iter().map(|named| named.rank).collect()
            }
            Err(_) => Vec::new(),
        }
    }

    #[test]
    fn a_note_names_all_waits_and_the_oldest_first() {
        let store = Store::in_process();
        let suspicions = Suspicions::new(store.clone(), 5);
        let note = || ranks_in(&store, 5);
        let now = Instant::now();
        let young = suspicions.enter(now, failures(&[1, 2]));
        let old = suspicions.enter(now - Duration::from_millis(1), failures(&[3]));
        assert_eq!(note(), [3, 1, 2]);
        suspicions.move_to(young, failures(&[2, 3]));
        assert_eq!(note(), [3, 2]);
        suspicions.renew(old);
        assert_eq!(note(), [2, 3]);
        suspicions.accuse(failure(4));
        suspicions.accuse(failure(1));
        assert_eq!(note(), [4, 2, 3]);
        suspicions.withdraw(young);
        assert_eq!(note(), [4, 3]);
        suspicions.keep(old);
        assert_eq!(note(), [4, 3]);
    }

    #[test]
    fn a_note_goes_with_the_last_wait_and_is_bounded() {
        let store = Store::in_process();
        let suspicions = Suspicions::new(store.clone(), 0);
        let many: Vec<usize> = (1..100).collect();
        let first = suspicions.enter(Instant::now(), failures(&many));
        assert_eq!(ranks_in(&store, 0), many[..NAMED_RANKS]);
        let second = suspicions.enter(Instant::now(), failures(&[50]));
        suspicions.withdraw(first);
        assert_eq!(ranks_in(&store, 0), [50]);
        suspicions.withdraw(second);
        assert!(store.read_note(&note_key(0), Duration::ZERO).is_err());
        for _ in 0..100 {
            let wait = suspicions.enter(Instant::now(), failures(&[7]));
            suspicions.keep(wait);
        }
        assert_eq!(lock(&suspicions.inner.list).waits.len(), NAMED_RANKS);
    }

    #[test]
    fn notes_of_many_threads_end_with_the_last_word() {
        let store = Store::in_process();
        let suspicions = Suspicions::new(store.clone(), 0);
        let last = suspicions.enter(Instant::now(), failures(&[1]));
        std::thread::scope(|scope| {
            for rank in 2..6 {
                let suspicions = &suspicions;
                scope.spawn(move || {
                    for _ in 0..200 {
                        suspicions.withdraw(suspicions.enter(Instant::now(), failures(&[rank])));
                    }
                });
            }
        });
        assert_eq!(ranks_in(&store, 0), [1]);
        suspicions.withdraw(last);
        assert!(ranks_in(&store, 0).is_empty());
    }
}
