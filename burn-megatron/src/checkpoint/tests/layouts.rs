//! Any layout is read in any other: random shapes, boxes and cuts, element by element.

use proptest::prelude::*;
use proptest::sample::Index as Pick;

use super::*;

const DTYPES: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

/// A logical shape, and how often each dimension is cut.
#[derive(Clone, Debug)]
struct Layout {
    shape: Vec<usize>,
    cuts: Vec<usize>,
}

/// Sizes from 1 to 6, one to four dimensions, each in one to three boxes.
fn layouts() -> impl Strategy<Value = (Layout, Vec<usize>)> {
    proptest::collection::vec((1usize..7, 1usize..4, 1usize..4), 1..5).prop_map(|dimensions| {
        let layout = Layout {
            shape: dimensions.iter().map(|d| d.0).collect(),
            cuts: dimensions.iter().map(|d| d.1).collect(),
        };
        (layout, dimensions.iter().map(|d| d.2).collect())
    })
}

/// Boxes of equal size that tile a shape; the last ones reach beyond it, or are outside.
fn boxes(shape: &[usize], cuts: &[usize]) -> Vec<Placement> {
    let local: Vec<usize> = shape.iter().zip(cuts).map(|(size, cut)| size.div_ceil(*cut)).collect();
    let count: usize = cuts.iter().product();
    (0..count)
        .map(|number| {
            let mut rest = number;
            let offset: Vec<usize> = cuts
                .iter()
                .zip(&local)
                .map(|(cut, size)| {
                    let place = rest % cut * size;
                    rest /= cut;
                    place
                })
                .collect();
            Placement::new(shape.to_vec(), offset, local.clone())
        })
        .collect()
}

/// Cuts `0..length` at some places.
fn cut(length: usize, places: &[Pick]) -> Vec<Range<usize>> {
    let mut ends: Vec<usize> = places.iter().map(|place| place.index(length + 1)).collect();
    ends.push(length);
    ends.sort_unstable();
    let mut begin = 0;
    ends.into_iter()
        .map(|end| std::mem::replace(&mut begin, end)..end)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_layout_is_read_in_any_other(
        (stored, wanted) in layouts(),
        num_ranks in 1usize..5,
        places in proptest::collection::vec(any::<Pick>(), 0..4),
        owners in proptest::collection::vec(any::<Pick>(), 1..12),
        reads in proptest::collection::vec(any::<Pick>(), 0..3),
        dtype in proptest::sample::select(DTYPES.to_vec()),
    ) {
        // Each box cut into ranges, each range on some rank: several parts of one array on one rank, empty ranges,
        // boxes of padding alone.
        let mut ranks = vec![Vec::new(); num_ranks];
        let mut owner = owners.iter().cycle();
        for placement in boxes(&stored.shape, &stored.cuts) {
            for range in cut(placement.local_len(), &places) {
                let rank = owner.next().expect("there is one owner").index(num_ranks);
                ranks[rank].push(part("a", placement.clone(), range, dtype));
            }
        }
        for rank in &mut ranks {
            // Another array, so that "a" does not begin where the file's arrays begin.
            rank.reverse();
        }
        ranks[0].push(part("b", Placement::whole([3]), 0..3, DType::BF16));
        let folder = in_memory();
        let checkpoint = write(folder.path(), &ranks);
        checkpoint.verify().unwrap();
        for placement in boxes(&stored.shape, &wanted) {
            for range in cut(placement.local_len(), &reads) {
                let read = checkpoint.read("a", &placement, range.clone()).unwrap();
                prop_assert_eq!(read.dtype, dtype);
                prop_assert_eq!(&*read.bytes, &*expected(&placement, range, dtype));
            }
        }
        // The same again from one file, in which each array has its shape.
        let converted = in_memory();
        let path = checkpoint.write_unsharded(converted.path()).unwrap();
        let converted = Checkpoint::open(path).unwrap();
        converted.verify().unwrap();
        prop_assert_eq!(converted.files().len(), 1);
        let all = Placement::whole(stored.shape.clone());
        let read = converted.read("a", &all, 0..all.local_len()).unwrap();
        prop_assert_eq!(&*read.bytes, &*expected(&all, 0..all.local_len(), dtype));
    }

    #[test]
    fn a_part_left_out_or_given_twice_is_refused(
        (layout, _) in layouts(),
        places in proptest::collection::vec(any::<Pick>(), 0..4),
        victim in any::<Pick>(),
        is_twice in any::<bool>(),
    ) {
        let mut ranks: Vec<Vec<ArrayPart>> = boxes(&layout.shape, &layout.cuts)
            .into_iter()
            .map(|placement| {
                let ranges = cut(placement.local_len(), &places);
                ranges.into_iter().map(|range| part("a", placement.clone(), range, DType::F32)).collect()
            })
            .collect();
        prop_assert!(planned(&ranks).is_ok());
        let number = victim.index(ranks.len());
        let number_of_part = victim.index(ranks[number].len());
        let removed = ranks[number].remove(number_of_part);
        let stored = super::super::region::Region::new(&removed.placement, removed.range.clone()).unwrap().stored_len();
        if is_twice {
            ranks[number].push(removed.clone());
            ranks.push(vec![removed]);
        }
        let outcome = planned(&ranks).map(|_| ());
        if stored == 0 {
            // Nothing is missing, unless it is the only word of the array.
            prop_assert!(outcome.is_ok());
        } else if ranks.iter().flatten().count() > 0 {
            let words = if is_twice { "is in a part of rank" } else { "is in no part of any rank" };
            let error = outcome.unwrap_err();
            prop_assert!(error.contains("array \"a\"") && error.contains(words), "{}", error);
        }
    }
}

#[test]
fn a_file_of_many_blocks_is_read_block_by_block() {
    // 3 million elements of 4 bytes: three blocks, of which the last is read when the first is broken.
    let shape = [3000, 1000];
    let folder = in_memory();
    let ranks = [0, 1].map(|index| vec![whole("a", Placement::shard(&shape, 1, index, 2))]);
    let checkpoint = write(folder.path(), &ranks);
    checkpoint.verify().unwrap();
    let rows = Placement::shard(&shape, 0, 2, 3);
    let read = checkpoint.read("a", &rows, 17..900_000).unwrap();
    assert!(*read.bytes == *expected(&rows, 17..900_000, DType::F32));

    let path = checkpoint.path().join("rank_00001.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let checkpoint = Checkpoint::open(checkpoint.path()).unwrap();
    assert!(
        checkpoint.read("a", &Placement::whole(shape), 0..400).is_ok(),
        "rank 0's columns"
    );
    assert!(checkpoint.read("a", &Placement::whole(shape), 0..600).is_err());
}

#[test]
fn a_file_has_the_shapes_of_whole_boxes() {
    let folder = in_memory();
    let padded = Placement::new([5, 3], [4, 0], [4, 3]);
    let ranks = [
        vec![
            whole("a", Placement::new([5, 3], [0, 0], [4, 3])),
            part("b", Placement::whole([4]), 0..1, DType::F64),
        ],
        vec![
            whole("a", padded),
            part("b", Placement::whole([4]), 1..4, DType::F64),
            whole("none", Placement::whole([0])),
        ],
    ];
    let checkpoint = write(folder.path(), &ranks);
    let bytes = std::fs::read(checkpoint.path().join("rank_00001.safetensors")).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut shapes: Vec<(String, Vec<usize>)> = tensors
        .tensors()
        .iter()
        .map(|(n, t)| (n.clone(), t.shape().to_vec()))
        .collect();
    shapes.sort();
    assert_eq!(shapes, [("a".to_owned(), vec![1, 3]), ("b".to_owned(), vec![3])]);
    assert_eq!(
        tensors.tensor("b").unwrap().data(),
        &*expected(&Placement::whole([4]), 1..4, DType::F64)
    );
    assert_eq!(checkpoint.array("none").unwrap().shape, [0]);
    let nothing = checkpoint.read("none", &Placement::whole([0]), 0..0).unwrap();
    assert_eq!(nothing.bytes.len(), 0);
}
