//! [`Slots`]: which of two ranks makes a connection between them when both want to.
//!
//! Either end makes it when it first has something to send or to wait for, so that neither waits for the other's
//! program. If both begin at once, the connection that the rank with the lower index makes is kept. Knows nothing of
//! sockets.

use std::collections::HashMap;

/// One of the connections to another rank: the channel, and the rank's group index.
pub(super) type Place = (u8, usize);

/// The connections of a group that are being made.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// This rank's group index.
    rank: usize,
    in_progress: HashMap<Place, Progress>,
    has_left: bool,
}

/// How far a connection is that does not exist yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// Whether this rank makes one.
    is_initiating: bool,
    /// Candidates that the other rank has made and whose last word is awaited: several if it has given some up, of
    /// which only one will say it.
    accepting: usize,
}

impl Slots {
    pub(super) fn new(rank: usize) -> Self {
        Self {
            rank,
            ..Self::default()
        }
    }

    /// Returns whether this rank is to make the connection now; if not, one that the other rank makes is on its way, or
    /// this rank has left.
    pub(super) fn initiate(&mut self, place: Place) -> bool {
        if self.has_left {
            return false;
        }
        let progress = self.in_progress.entry(place).or_default();
        let is_free = !progress.is_initiating && progress.accepting == 0;
        progress.is_initiating |= is_free;
        is_free
    }

    /// Notes that what this rank has made did not become a connection.
    pub(super) fn give_up(&mut self, place: Place) {
        self.change(place, |progress| progress.is_initiating = false);
    }

    /// Returns whether a candidate's last word is awaited.
    pub(super) fn is_accepting(&self, place: Place) -> bool {
        let progress = self.in_progress.get(&place);
        progress.is_some_and(|progress| progress.accepting > 0)
    }

    /// Returns why a candidate that the other rank has made is not wanted, if so; else its last word is awaited.
    pub(super) fn welcome(&mut self, place: Place) -> Result<(), &'static str> {
        if self.has_left {
            return Err("this rank has left the group");
        }
        let progress = self.in_progress.entry(place).or_default();
        if progress.is_initiating && self.rank < place.1 {
            return Err("this rank is making the same connection");
        }
        progress.accepting += 1;
        Ok(())
    }

    /// Notes that a candidate that was welcomed has gone.
    pub(super) fn dismiss(&mut self, place: Place) {
        self.change(place, |progress| {
            progress.accepting = progress.accepting.saturating_sub(1)
        });
    }

    /// Returns whether the candidate whose last word has come is the connection from now on.
    pub(super) fn accept(&mut self, place: Place) -> bool {
        self.made(place);
        !self.has_left
    }

    /// Notes that there is a connection from now on.
    pub(super) fn made(&mut self, place: Place) {
        self.in_progress.remove(&place);
    }

    /// Returns whether this rank wants no further connection.
    pub(super) fn has_left(&self) -> bool {
        self.has_left
    }

    /// Notes that this rank wants no further connection.
    pub(super) fn leave(&mut self) {
        self.has_left = true;
    }

    fn change(&mut self, place: Place, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.in_progress.get_mut(&place) {
            change(progress);
            if *progress == Progress::default() {
                self.in_progress.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What travels on a connection, in order.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Word {
        /// To the acceptor.
        Claim,
        Last,
        Closed,
        /// To the initiator.
        Welcome,
        Refusal,
    }

    /// A connection that a rank tries to make.
    #[derive(Debug)]
    struct Attempt {
        initiator: usize,
        to_acceptor: Vec<Word>,
        to_initiator: Vec<Word>,
        is_welcome: bool,
        is_given_up: bool,
    }

    #[derive(Debug)]
    struct Pair {
        slots: [Slots; 2],
        made: [Option<usize>; 2],
        attempts: Vec<Attempt>,
    }

    const CHANNEL: u8 = 0;

    impl Pair {
        fn new() -> Self {
            Self {
                slots: [0, 1].map(Slots::new),
                made: [None; 2],
                attempts: vec![],
            }
        }

        fn initiate(&mut self, initiator: usize) {
            if self.made[initiator].is_none() && self.slots[initiator].initiate((CHANNEL, 1 - initiator)) {
                self.attempts.push(Attempt {
                    initiator,
                    to_acceptor: vec![Word::Claim],
                    to_initiator: vec![],
                    is_welcome: false,
                    is_given_up: false,
                });
            }
        }

        /// The initiator of an attempt runs out of patience before it has an answer.
        fn give_up(&mut self, number: usize) {
            let Attempt {
                initiator,
                to_acceptor,
                is_given_up,
                ..
            } = &mut self.attempts[number];
            if *is_given_up || self.made[*initiator] == Some(number) {
                return;
            }
            *is_given_up = true;
            to_acceptor.push(Word::Closed);
            self.slots[*initiator].give_up((CHANNEL, 1 - *initiator));
        }

        fn keep(&mut self, rank: usize, number: usize) {
            assert_eq!(self.made[rank], None, "rank {rank} makes {number} too: {self:?}");
            self.made[rank] = Some(number);
        }

        /// The acceptor of an attempt hears the next word; returns whether there was one.
        fn hear(&mut self, number: usize) -> bool {
            let attempt = &mut self.attempts[number];
            if attempt.to_acceptor.is_empty() {
                return false;
            }
            let word = attempt.to_acceptor.remove(0);
            let (initiator, acceptor) = (attempt.initiator, 1 - attempt.initiator);
            let place = (CHANNEL, initiator);
            match word {
                Word::Claim => {
                    let is_made = self.made[acceptor].is_some();
                    let is_welcome = !is_made && self.slots[acceptor].welcome(place).is_ok();
                    let answer = if is_welcome { Word::Welcome } else { Word::Refusal };
                    self.attempts[number].is_welcome = is_welcome;
                    self.attempts[number].to_initiator.push(answer);
                }
                Word::Last => {
                    let is_kept = self.slots[acceptor].accept(place);
                    assert!(is_kept, "{number} is lost: {self:?}");
                    self.keep(acceptor, number);
                }
                // A candidate that was refused is none.
                _ if !attempt.is_welcome => {}
                _ => self.slots[acceptor].dismiss(place),
            }
            true
        }

        /// The initiator of an attempt hears the answer; returns whether there was one.
        fn learn(&mut self, number: usize) -> bool {
            let attempt = &mut self.attempts[number];
            let Some(answer) = attempt.to_initiator.pop() else {
                return false;
            };
            let (initiator, place) = (attempt.initiator, (CHANNEL, 1 - attempt.initiator));
            match answer {
                _ if attempt.is_given_up => {}
                Word::Welcome => {
                    attempt.to_acceptor.push(Word::Last);
                    self.slots[initiator].made(place);
                    self.keep(initiator, number);
                }
                _ => {
                    attempt.is_given_up = true;
                    self.slots[initiator].give_up(place);
                }
            }
            true
        }
    }

    proptest! {
        #[test]
        fn two_ranks_end_with_the_same_connection(
            steps in prop::collection::vec((0_u8..5, any::<prop::sample::Index>()), 0..60),
        ) {
            let mut pair = Pair::new();
            for (step, which) in steps {
                let number = which.index(pair.attempts.len().max(1));
                match step {
                    0 | 1 => pair.initiate(step.into()),
                    _ if pair.attempts.is_empty() => {}
                    2 => drop(pair.hear(number)),
                    3 => drop(pair.learn(number)),
                    _ => pair.give_up(number),
                }
            }
            // Now both want it, and neither loses patience.
            for _ in 0..10 {
                pair.initiate(0);
                pair.initiate(1);
                while (0..pair.attempts.len()).any(|number| pair.hear(number) || pair.learn(number)) {}
            }
            prop_assert!(pair.made[0].is_some() && pair.made[0] == pair.made[1], "{:?}", pair);
            prop_assert!(pair.slots.iter().all(|slots| slots.in_progress.is_empty()), "{:?}", pair);
        }
    }

    #[test]
    fn who_has_left_wants_no_connection() {
        let mut slots = Slots::new(0);
        assert_eq!(slots.welcome((CHANNEL, 1)), Ok(()));
        slots.leave();
        assert!(!slots.accept((CHANNEL, 1)));
        assert_eq!(slots.welcome((CHANNEL, 1)), Err("this rank has left the group"));
    }
}
