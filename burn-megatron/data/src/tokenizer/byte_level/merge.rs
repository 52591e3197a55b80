//! Merging pairs of tokens in the order of their ranks.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::tokenizer::Token;

/// A pair that becomes one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tokenizer) struct Merge {
    /// Pairs with a lower rank are merged first.
    pub(in crate::tokenizer) rank: u32,
    /// What the pair becomes.
    pub(in crate::tokenizer) token: Token,
}

/// Spreads the bits of a pair of tokens, which are one number.
#[derive(Debug, Default)]
pub(in crate::tokenizer) struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, pair: u64) {
        let product = u128::from(self.0 ^ pair) * 0x9E37_79B9_7F4A_7C15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// The merges of a vocabulary.
#[derive(Debug, Default)]
pub(in crate::tokenizer) struct Merges {
    pairs: HashMap<u64, Merge, BuildHasherDefault<PairHasher>>,
    /// Whether several pairs become the same token: then a merge that is not possible any more may be taken for another
    /// one.
    ambiguous: bool,
}

/// Longest word, in tokens, for which looking at all pairs is quicker than a queue.
const SHORT: usize = 32;

const NONE: u32 = u32::MAX;

fn key(left: Token, right: Token) -> u64 {
    u64::from(left) << 32 | u64::from(right)
}

impl Merges {
    /// Returns the merges in the order of their ranks: pairs, and what they become. Of equal pairs the last counts.
    pub(in crate::tokenizer) fn new(merges: &[(Token, Token, Token)]) -> Self {
        let mut pairs = HashMap::with_capacity_and_hasher(merges.len(), BuildHasherDefault::default());
        let mut results = HashSet::with_capacity(merges.len());
        let mut ambiguous = false;
        for (rank, &(left, right, token)) in merges.iter().enumerate() {
            ambiguous |= !results.insert(token);
            pairs.insert(
                key(left, right),
                Merge {
                    rank: rank as u32,
                    token,
                },
            );
        }
        Self { pairs, ambiguous }
    }

    /// Returns merges of which several have the same rank, and are then done from left to right: rank, pair, and what
    /// it becomes.
    pub(in crate::tokenizer) fn with_ranks(merges: impl IntoIterator<Item = (u32, Token, Token, Token)>) -> Self {
        let merges = merges
            .into_iter()
            .map(|(rank, left, right, token)| (key(left, right), Merge { rank, token }));
        Self {
            pairs: merges.collect(),
            ambiguous: true,
        }
    }

    fn of(&self, left: Token, right: Token) -> Option<Merge> {
        self.pairs.get(&key(left, right)).copied()
    }

    /// Merges the tokens of a word until no pair of neighbours has a rank.
    pub(in crate::tokenizer) fn apply(&self, word: &mut Vec<Token>, links: &mut Links) {
        if word.len() <= SHORT && !self.ambiguous {
            self.apply_short(word);
        } else {
            self.apply_long(word, links);
        }
    }

    fn apply_short(&self, word: &mut Vec<Token>) {
        let mut possible = [Merge { rank: NONE, token: 0 }; SHORT];
        let none = Merge { rank: NONE, token: 0 };
        for (place, pair) in word.windows(2).enumerate() {
            possible[place] = self.of(pair[0], pair[1]).unwrap_or(none);
        }
        while word.len() > 1 {
            let pairs = word.len() - 1;
            let Some(place) = (0..pairs).min_by_key(|&place| possible[place].rank) else {
                return;
            };
            if possible[place].rank == NONE {
                return;
            }
            word[place] = possible[place].token;
            word.remove(place + 1);
            possible.copy_within(place + 1..pairs, place);
            if let Some(&next) = word.get(place + 1) {
                possible[place] = self.of(word[place], next).unwrap_or(none);
            }
            if place > 0 {
                possible[place - 1] = self.of(word[place - 1], word[place]).unwrap_or(none);
            }
        }
    }

    fn apply_long(&self, word: &mut Vec<Token>, links: &mut Links) {
        links.reset(word.len());
        let queue = &mut links.queue;
        for (place, pair) in word.windows(2).enumerate() {
            queue.extend(
                self.of(pair[0], pair[1])
                    .map(|merge| Reverse((merge.rank, place as u32, merge.token))),
            );
        }
        while let Some(Reverse((_, place, token))) = queue.pop() {
            let next = links.next[place as usize];
            // The token at this place, or the one after it, may have been merged in the meantime.
            if links.removed[place as usize] || next == NONE {
                continue;
            }
            let pair = self.of(word[place as usize], word[next as usize]);
            if pair.is_none_or(|pair| pair.token != token) {
                continue;
            }
            word[place as usize] = token;
            links.removed[next as usize] = true;
            let after = links.next[next as usize];
            links.next[place as usize] = after;
            if after != NONE {
                links.previous[after as usize] = place;
                let merge = self.of(token, word[after as usize]);
                queue.extend(merge.map(|merge| Reverse((merge.rank, place, merge.token))));
            }
            let before = links.previous[place as usize];
            if before != NONE {
                let merge = self.of(word[before as usize], token);
                queue.extend(merge.map(|merge| Reverse((merge.rank, before, merge.token))));
            }
        }
        let mut place = 0;
        word.retain(|_| {
            place += 1;
            !links.removed[place - 1]
        });
    }
}

/// The neighbours of each token of a long word, and the merges that are possible.
#[derive(Debug, Default)]
pub(in crate::tokenizer) struct Links {
    previous: Vec<u32>,
    next: Vec<u32>,
    removed: Vec<bool>,
    queue: BinaryHeap<Reverse<(u32, u32, Token)>>,
}

impl Links {
    fn reset(&mut self, tokens: usize) {
        let tokens = u32::try_from(tokens).expect("a word is shorter than 4 GiB");
        self.previous.clear();
        self.previous.extend((0..tokens).map(|place| place.wrapping_sub(1)));
        self.next.clear();
        self.next.extend(1..tokens);
        self.next.push(NONE);
        self.removed.clear();
        self.removed.resize(tokens as usize, false);
        self.queue.clear();
    }
}
