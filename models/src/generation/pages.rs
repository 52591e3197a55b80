//! [`CacheConfig`]: how much of keys and values is kept; and which pages are free.

use serde::{Deserialize, Serialize};

use super::request::RequestError;

/// The size of the cache of keys and values, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheConfig {
    pub page_tokens: usize,
    /// Pages, which all sequences share.
    pub num_pages: usize,
}

impl CacheConfig {
    /// Returns the smallest cache of pages of 16 tokens that holds `tokens`, in `sequences` of equal length.
    pub fn for_tokens(sequences: usize, tokens: usize) -> Self {
        let page_tokens = 16;
        Self {
            page_tokens,
            num_pages: sequences.saturating_mul(tokens.div_ceil(page_tokens)),
        }
    }

    /// The pages that a sequence of `tokens` needs.
    pub fn pages_of(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.page_tokens)
    }

    /// The bytes of the cache on a rank with `layers` layers, each with `kv_heads` heads of `d_head` elements of
    /// `element_bytes`: `2 * layers * tokens * kv_heads * d_head * element_bytes`; `None` if no number holds them.
    pub fn bytes(&self, layers: usize, kv_heads: usize, d_head: usize, element_bytes: usize) -> Option<usize> {
        [
            layers,
            self.num_pages,
            self.page_tokens,
            kv_heads,
            d_head,
            element_bytes,
        ]
        .into_iter()
        .try_fold(2_usize, usize::checked_mul)
    }
}

/// How full the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    pub num_pages: usize,
    /// Those that no sequence has.
    pub free_pages: usize,
}

/// Which pages are free.
#[derive(Debug)]
pub(super) struct PagePool {
    num_pages: usize,
    /// The page that is taken next comes last.
    free: Vec<usize>,
}

impl PagePool {
    pub(super) fn new(num_pages: usize) -> Self {
        Self {
            num_pages,
            free: (0..num_pages).rev().collect(),
        }
    }

    pub(super) fn in_use(&self) -> CacheUse {
        CacheUse {
            num_pages: self.num_pages,
            free_pages: self.free.len(),
        }
    }

    /// Takes `count` pages; none if there are fewer.
    pub(super) fn take(&mut self, count: usize) -> Option<Vec<usize>> {
        let rest = self.free.len().checked_sub(count)?;
        let mut taken = self.free.split_off(rest);
        taken.reverse();
        Some(taken)
    }

    pub(super) fn give_back(&mut self, pages: Vec<usize>) {
        self.free.extend(pages.into_iter().rev());
        debug_assert!(self.free.len() <= self.num_pages, "a page was given back twice");
    }

    /// Refuses what all pages together do not hold.
    pub(super) fn check(&self, needed: usize) -> Result<(), RequestError> {
        let num_pages = self.num_pages;
        if needed > num_pages {
            return Err(RequestError::LargerThanCache { needed, num_pages });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_are_those_of_keys_and_values() {
        let config = CacheConfig::for_tokens(3, 100);
        assert_eq!((config.page_tokens, config.num_pages), (16, 21));
        assert_eq!(config.bytes(12, 6, 64, 2), Some(2 * 12 * 21 * 16 * 6 * 64 * 2));
        let config = CacheConfig {
            num_pages: usize::MAX,
            ..config
        };
        assert_eq!(config.bytes(12, 6, 64, 2), None);
    }

    proptest! {
        #[test]
        fn no_page_is_given_twice(steps in prop::collection::vec((any::<bool>(), 0_usize..6), 1..60)) {
            let mut pool = PagePool::new(16);
            let mut held: Vec<Vec<usize>> = Vec::new();
            for (takes, number) in steps {
                if takes {
                    let free = pool.in_use().free_pages;
                    match pool.take(number) {
                        Some(pages) => {
                            prop_assert_eq!(pages.len(), number);
                            held.push(pages);
                        }
                        None => prop_assert!(number > free),
                    }
                } else if !held.is_empty() {
                    pool.give_back(held.swap_remove(number % held.len()));
                }
                let all: Vec<usize> = held.concat();
                let different: HashSet<usize> = all.iter().copied().collect();
                prop_assert_eq!(different.len(), all.len());
                prop_assert!(all.iter().all(|page| *page < 16));
                prop_assert_eq!(pool.in_use().free_pages, 16 - all.len());
            }
        }
    }
}
