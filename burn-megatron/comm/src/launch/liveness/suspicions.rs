//! [`Suspicions`]: whom this rank waits for, or holds responsible for an error, and where the other ranks read it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::first_cause::follow;
use crate::launch::error::LaunchError;
use crate::launch::peer_failure::{PeerFailure, Suspicion};
use crate::launch::store::Store;

/// Ranks that a note names at most, and waits that stay in the list after they have failed.
const NAMED_RANKS: usize = 8;

/// What this rank notes of other ranks. Clones share one list; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Suspicions {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    rank: usize,
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    /// Whom the first error of this rank accuses.
    accused: Option<Suspicion>,
    /// By the number of the wait.
    waits: BTreeMap<u64, LongWait>,
    next_number: u64,
    /// The note as the store has it; empty for none.
    published: Vec<Suspicion>,
    is_publishing: bool,
}

#[derive(Debug)]
struct LongWait {
    /// When it began, or something moved.
    since: Instant,
    missing: Vec<Suspicion>,
    is_kept: bool,
}

impl List {
    /// Returns what the other ranks shall read: the first error, then the waits, the oldest first, each rank once.
    fn note(&self) -> Vec<Suspicion> {
        let mut waits: Vec<_> = self.waits.values().collect();
        waits.sort_by_key(|wait| wait.since);
        let mut note: Vec<Suspicion> = Vec::new();
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
    pub(crate) fn accuse(&self, suspicion: Suspicion) {
        self.inner.list.lock().accused.get_or_insert(suspicion);
        self.publish();
    }

    /// Enters a wait that has gone on since `since`, for the ranks `missing`; returns its number.
    pub(crate) fn enter(&self, since: Instant, missing: Vec<Suspicion>) -> u64 {
        let number = {
            let mut list = self.inner.list.lock();
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
    pub(crate) fn move_to(&self, number: u64, missing: Vec<Suspicion>) {
        self.change(number, |wait| wait.missing = named(missing));
    }

    /// Notes that something has moved in a wait: others are older now.
    pub(crate) fn renew(&self, number: u64) {
        self.change(number, |wait| wait.since = Instant::now());
    }

    /// Notes that a wait has failed: it stays in the list.
    pub(crate) fn keep(&self, number: u64) {
        let mut list = self.inner.list.lock();
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
        self.inner.list.lock().waits.remove(&number);
        self.publish();
    }

    fn change(&self, number: u64, change: impl FnOnce(&mut LongWait)) {
        if let Some(wait) = self.inner.list.lock().waits.get_mut(&number) {
            change(wait);
        }
        self.publish();
    }

    /// Brings the note in the store up to date. Where a thread is at it already, that one does: no wait shall be held
    /// up by another's talk with the store.
    fn publish(&self) {
        let mut list = self.inner.list.lock();
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
            list = self.inner.list.lock();
        }
        list.is_publishing = false;
    }

    fn write(&self, note: &[Suspicion]) {
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
    pub(crate) fn first_cause(&self, limit: Duration) -> Result<Option<Suspicion>, PeerFailure> {
        let Inner { store, rank, list } = &*self.inner;
        let own = {
            let list = list.lock();
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

fn named(mut missing: Vec<Suspicion>) -> Vec<Suspicion> {
    missing.truncate(NAMED_RANKS);
    missing
}

/// The key of the store under which a rank's note is.
pub(crate) fn note_key(rank: usize) -> String {
    format!("suspicion/{rank}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(ranks: &[usize]) -> Vec<Suspicion> {
        ranks.iter().map(|&rank| Suspicion::example(rank)).collect()
    }

    fn ranks_in(store: &Store, rank: usize) -> Vec<usize> {
        match store.read_note(&note_key(rank), Duration::ZERO) {
            Ok(note) => {
                let note: Vec<Suspicion> = serde_json::from_slice(&note).unwrap();
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
        suspicions.accuse(Suspicion::example(4));
        suspicions.accuse(Suspicion::example(1));
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
        assert_eq!(suspicions.inner.list.lock().waits.len(), NAMED_RANKS);
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
