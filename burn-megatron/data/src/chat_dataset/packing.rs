//! Which conversations share a sample.

/// Puts items of these lengths into bins of `capacity`, each into the first that has room, in the given order. Returns
/// the items of each bin; what is longer than a bin is in none.
///
/// The first bin with room is found in a tree of the most room of each half, so n items take O(n log n).
pub(super) fn first_fit(lengths: &[usize], capacity: usize) -> Vec<Vec<u32>> {
    let leaves = lengths.len().next_power_of_two();
    // Node 1 is the root, and 2i and 2i + 1 are below node i. A bin that is not used yet has all its room.
    let mut room = vec![capacity; 2 * leaves];
    let mut bins: Vec<Vec<u32>> = vec![];
    for (item, &length) in (0..).zip(lengths) {
        if length > capacity {
            continue;
        }
        let mut node = 1;
        while node < leaves {
            node = 2 * node + usize::from(room[2 * node] < length);
        }
        let bin = node - leaves;
        if bin == bins.len() {
            bins.push(vec![]);
        }
        bins[bin].push(item);
        room[node] -= length;
        while node > 1 {
            node /= 2;
            room[node] = room[2 * node].max(room[2 * node + 1]);
        }
    }
    bins
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_item_goes_into_the_first_bin_with_room() {
        assert_eq!(
            first_fit(&[4, 7, 5, 3, 11, 1, 10], 10),
            [vec![0, 2, 5], vec![1, 3], vec![6]]
        );
        assert!(first_fit(&[], 10).is_empty());
        assert!(first_fit(&[11], 10).is_empty());
    }

    proptest! {
        #[test]
        fn bins_are_those_of_a_search_one_by_one(
            lengths in prop::collection::vec(0usize..40, 0..60),
            capacity in 1usize..40,
        ) {
            let mut room: Vec<usize> = vec![];
            let mut bins: Vec<Vec<u32>> = vec![];
            for (item, &length) in lengths.iter().enumerate().filter(|(_, length)| **length <= capacity) {
                let bin = room.iter().position(|&room| room >= length).unwrap_or(room.len());
                if bin == room.len() {
                    room.push(capacity);
                    bins.push(vec![]);
                }
                room[bin] -= length;
                bins[bin].push(item as u32);
            }
            prop_assert_eq!(first_fit(&lengths, capacity), bins);
        }
    }
}
