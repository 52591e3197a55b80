//! Tests of data sets in files.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::tokenizer::Token;

/// Documents as lists of sequences.
type Documents = Vec<Vec<Vec<Token>>>;

fn write(prefix: &Path, element_type: ElementType, documents: &Documents) -> DatasetTotals {
    let mut writer = IndexedDatasetWriter::create(prefix, element_type).unwrap();
    for document in documents {
        for sequence in document {
            writer.push_sequence(sequence).unwrap();
        }
        writer.end_document().unwrap();
    }
    writer.finish().unwrap()
}

fn read(prefix: &Path) -> Documents {
    let dataset = IndexedDataset::open(prefix).unwrap();
    let sequence = |sequence| {
        let mut tokens = vec![];
        dataset.read(sequence, 0..dataset.document_length(sequence), &mut tokens);
        tokens
    };
    (0..dataset.num_boundaries() - 1)
        .map(|document| dataset.document_sequences(document).map(sequence).collect())
        .collect()
}

fn folder() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let prefix = folder.path().join("data.v1_text_document");
    (folder, prefix)
}

/// Two documents with an empty one between them.
fn sample() -> Documents {
    vec![vec![vec![1, 2, 3], vec![4]], vec![], vec![vec![7, 300]]]
}

fn names(folder: &TempDir) -> Vec<String> {
    let names = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn documents() -> impl Strategy<Value = Documents> {
    let sequence = prop::collection::vec(0..=127_u32, 0..5);
    prop::collection::vec(prop::collection::vec(sequence, 0..4), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn documents_come_back_from_files(
        documents in documents(),
        code in 1..=8_u8,
    ) {
        let (_folder, prefix) = folder();
        let element_type = ElementType::from_code(code).unwrap();
        let totals = write(&prefix, element_type, &documents);
        prop_assert_eq!(read(&prefix), documents.clone());
        let dataset = IndexedDataset::open(&prefix).unwrap();
        prop_assert!(dataset.is_contiguous() && !dataset.has_modes());
        prop_assert_eq!(dataset.element_type(), element_type);
        let sequences: Vec<&Vec<Token>> = documents.iter().flatten().collect();
        let expected = DatasetTotals {
            documents: documents.len() as u64,
            sequences: sequences.len() as u64,
            tokens: sequences.iter().map(|sequence| sequence.len() as u64).sum(),
            bytes: fs::metadata(bin_path(&prefix)).unwrap().len() + fs::metadata(idx_path(&prefix)).unwrap().len(),
        };
        prop_assert_eq!(totals, expected);
        // Parts of sequences.
        for (number, sequence) in sequences.iter().enumerate() {
            let (start, end) = (sequence.len() / 3, sequence.len() - sequence.len() / 4);
            let mut tokens = vec![9];
            dataset.read(number, start..end, &mut tokens);
            prop_assert_eq!(&tokens[1..], &sequence[start..end]);
        }
    }

    #[test]
    fn damaged_indices_never_panic(place in 0..140_usize, value in any::<u8>()) {
        let (_folder, prefix) = folder();
        write(&prefix, ElementType::U16, &sample());
        let mut idx = fs::read(idx_path(&prefix)).unwrap();
        let place = place % idx.len();
        idx[place] = value;
        fs::write(idx_path(&prefix), idx).unwrap();
        if let Ok(dataset) = IndexedDataset::open(&prefix) {
            let mut tokens = vec![];
            for sequence in 0..dataset.num_sequences() {
                dataset.read(sequence, 0..dataset.document_length(sequence), &mut tokens);
            }
            prop_assert!(dataset.boundaries().all(|boundary| boundary <= dataset.num_sequences()));
        }
    }
}

#[test]
fn files_are_as_documented() {
    let (folder, prefix) = folder();
    write(&prefix, ElementType::U16, &sample());
    assert_eq!(
        names(&folder),
        ["data.v1_text_document.bin", "data.v1_text_document.idx"]
    );
    assert_eq!(
        fs::read(bin_path(&prefix)).unwrap(),
        [1, 0, 2, 0, 3, 0, 4, 0, 7, 0, 44, 1]
    );
    let mut idx = b"MMIDIDX\0\0".to_vec();
    idx.extend(1_u64.to_le_bytes());
    idx.push(8);
    idx.extend(3_u64.to_le_bytes());
    idx.extend(4_u64.to_le_bytes());
    idx.extend([3_i32, 1, 2].iter().flat_map(|length| length.to_le_bytes()));
    idx.extend([0_i64, 6, 8].iter().flat_map(|offset| offset.to_le_bytes()));
    idx.extend([0_i64, 2, 2, 3].iter().flat_map(|boundary| boundary.to_le_bytes()));
    assert_eq!(fs::read(idx_path(&prefix)).unwrap(), idx);
}

#[test]
fn vocabularies_choose_the_type() {
    assert_eq!(ElementType::for_vocabulary(65_499), ElementType::U16);
    assert_eq!(ElementType::for_vocabulary(65_500), ElementType::I32);
    assert_eq!(ElementType::from_code(0), None);
    assert_eq!(ElementType::from_code(9), None);
}

#[test]
fn what_is_no_token_is_in_no_vocabulary() {
    let decode = |element_type: ElementType, bytes: &[u8]| {
        let mut tokens = vec![];
        element_type.decode(bytes, &mut tokens);
        tokens
    };
    assert_eq!(decode(ElementType::I8, &[5, 0xFF]), [5, Token::MAX]);
    assert_eq!(decode(ElementType::I32, &(-1_i32).to_le_bytes()), [Token::MAX]);
    assert_eq!(decode(ElementType::I64, &(1_i64 << 32).to_le_bytes()), [Token::MAX]);
    assert_eq!(decode(ElementType::F32, &1.5_f32.to_le_bytes()), [Token::MAX]);
    assert_eq!(decode(ElementType::F64, &f64::NAN.to_le_bytes()), [Token::MAX]);
    assert_eq!(decode(ElementType::F64, &(-2.0_f64).to_le_bytes()), [Token::MAX]);
    let (_folder, prefix) = folder();
    write(&prefix, ElementType::I32, &sample());
    let dataset = IndexedDataset::open(&prefix).unwrap();
    dataset.check_vocabulary(301).unwrap();
    let error = dataset.check_vocabulary(300).unwrap_err().to_string();
    assert!(
        error.ends_with("token 1 of sequence 2 is 300, expected a token below 300, the size of the vocabulary"),
        "{error}"
    );
}

#[test]
fn every_truncation_is_an_error() {
    let (_folder, prefix) = folder();
    write(&prefix, ElementType::U16, &sample());
    for path in [bin_path(&prefix), idx_path(&prefix)] {
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = IndexedDataset::open(&prefix).expect_err("truncated").to_string();
            assert!(error.contains(".idx") && error.contains("expected"), "{error}");
        }
        fs::write(&path, whole).unwrap();
        IndexedDataset::open(&prefix).unwrap();
    }
}

#[test]
fn damaged_fields_are_named() {
    let (_folder, prefix) = folder();
    write(&prefix, ElementType::U16, &sample());
    let idx = fs::read(idx_path(&prefix)).unwrap();
    let (lengths, offsets, boundaries) = (34, 34 + 12, 34 + 12 + 24);
    let cases: &[(usize, &[u8], &str)] = &[
        (0, b"X", r#"magic is "XMIDIDX\x00\x00", expected "MMIDIDX\x00\x00""#),
        (9, &[2], "version is 2, expected 1"),
        (17, &[9], "code of the type of elements is 9, expected 1 to 8"),
        (
            18,
            &[4],
            "size is 102 bytes, expected 114 bytes for 4 sequences and 4 document boundaries",
        ),
        (18, &[255; 8], "size is 102 bytes, expected"),
        (26, &[255; 16], "size is 102 bytes, expected"),
        (26, &[0; 8], "number of document boundaries is 0, expected 1 or more"),
        (
            lengths + 4,
            &(-1_i32).to_le_bytes(),
            "length 1 is -1, expected 0 or more",
        ),
        (
            lengths + 8,
            &[3],
            "sequence 2 (3 tokens of u16) is at bytes 8 to 14, expected a place in the 12 bytes of",
        ),
        (
            lengths + 8,
            &i32::MAX.to_le_bytes(),
            "sequence 2 (2147483647 tokens of u16) is at bytes 8 to 4294967302",
        ),
        (
            offsets,
            &i64::MIN.to_le_bytes(),
            "offset 0 is -9223372036854775808, expected 0 or more",
        ),
        (
            offsets,
            &i64::MAX.to_le_bytes(),
            "sequence 0 (3 tokens of u16) is at bytes 9223372036854775807 to",
        ),
        (boundaries, &[1], "document boundary 0 is 1, expected 0"),
        (
            boundaries + 8,
            &[3],
            "document boundary 2 is 2, expected a number from 3, the one before it, to 3",
        ),
        (
            boundaries + 24,
            &[4],
            "document boundary 3 is 4, expected a number from 2, the one before it, to 3",
        ),
        (boundaries + 24, &[255; 8], "document boundary 3 is -1"),
    ];
    for (place, bytes, expected) in cases {
        let mut damaged = idx.clone();
        damaged[*place..place + bytes.len()].copy_from_slice(bytes);
        fs::write(idx_path(&prefix), damaged).unwrap();
        let error = IndexedDataset::open(&prefix).expect_err(expected).to_string();
        assert!(
            error.contains(&format!("data.v1_text_document.idx: {expected}")),
            "{error}, expected {expected}"
        );
    }
}

#[test]
fn modes_at_the_end_are_passed_over() {
    let (folder, prefix) = folder();
    write(&prefix, ElementType::U16, &sample());
    let mut idx = fs::read(idx_path(&prefix)).unwrap();
    idx.extend([0, 1, 0]);
    fs::write(idx_path(&prefix), idx).unwrap();
    assert_eq!(read(&prefix), sample());
    assert!(IndexedDataset::open(&prefix).unwrap().has_modes());
    let error = merge(&[&prefix], folder.path().join("merged")).unwrap_err().to_string();
    assert!(error.contains("multimodal"), "{error}");
}

#[test]
fn a_missing_file_is_named() {
    let (_folder, prefix) = folder();
    let error = IndexedDataset::open(&prefix).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot open") && error.contains("data.v1_text_document.bin: "),
        "{error}"
    );
}

#[test]
fn a_dropped_writer_leaves_nothing_and_the_old_data_set() {
    let (folder, prefix) = folder();
    let mut writer = IndexedDatasetWriter::create(&prefix, ElementType::U16).unwrap();
    writer.push_document(&[1; 1 << 20]).unwrap();
    assert_eq!(
        names(&folder),
        ["data.v1_text_document.bin.tmp", "data.v1_text_document.idx.tmp"]
    );
    drop(writer);
    assert!(names(&folder).is_empty());

    write(&prefix, ElementType::U16, &sample());
    let mut writer = IndexedDatasetWriter::create(&prefix, ElementType::U16).unwrap();
    writer.push_document(&[5]).unwrap();
    drop(writer);
    assert_eq!(read(&prefix), sample());
    write(&prefix, ElementType::I32, &vec![vec![vec![5]]]);
    assert_eq!(read(&prefix), [[[5]]]);
}

#[test]
fn what_a_killed_writer_left_is_overwritten() {
    let (folder, prefix) = folder();
    fs::write(folder.path().join("data.v1_text_document.bin.tmp"), [9; 100]).unwrap();
    fs::write(folder.path().join("data.v1_text_document.idx.tmp"), [9; 100]).unwrap();
    write(&prefix, ElementType::U16, &sample());
    assert_eq!(read(&prefix), sample());
    assert_eq!(names(&folder).len(), 2);
}

#[test]
fn two_writers_of_one_data_set_are_refused() {
    let (_folder, prefix) = folder();
    let first = IndexedDatasetWriter::create(&prefix, ElementType::U16).unwrap();
    let error = IndexedDatasetWriter::create(&prefix, ElementType::U16).unwrap_err();
    assert!(matches!(error, IndexedDatasetError::Busy { .. }), "{error}");
    first.finish().unwrap();
    IndexedDatasetWriter::create(&prefix, ElementType::U16).unwrap();
}

#[test]
fn tokens_that_do_not_fit_are_refused() {
    let (_folder, prefix) = folder();
    let mut writer = IndexedDatasetWriter::create(&prefix, ElementType::U16).unwrap();
    writer.push_document(&[65_535]).unwrap();
    let error = writer.push_document(&[1, 65_536]).unwrap_err().to_string();
    assert!(error.starts_with("token 65536 does not fit into u16 of"), "{error}");
    writer.finish().unwrap();
    assert_eq!(read(&prefix), [[[65_535]]]);
}

#[test]
fn long_indices_are_written_in_parts() {
    let (_folder, prefix) = folder();
    let documents: Documents = (0..70_000)
        .map(|document| vec![vec![document; (document % 4) as usize]])
        .collect();
    write(&prefix, ElementType::I32, &documents);
    assert!(read(&prefix) == documents);
}

#[test]
fn merged_data_sets_follow_each_other() {
    let (folder, prefix) = folder();
    let other = folder.path().join("other");
    let merged = folder.path().join("merged");
    let more = vec![vec![], vec![vec![9, 9]]];
    write(&prefix, ElementType::U16, &sample());
    write(&other, ElementType::U16, &more);
    let totals = merge(&[&prefix, &other, &prefix], &merged).unwrap();
    assert_eq!(read(&merged), [sample(), more, sample()].concat());
    assert_eq!((totals.documents, totals.sequences, totals.tokens), (8, 7, 14));

    write(&other, ElementType::I32, &sample());
    let error = merge(&[&prefix, &other], &merged).unwrap_err().to_string();
    assert!(
        error.contains("data.v1_text_document has tokens of u16") && error.contains("other of i32"),
        "{error}"
    );
    let error = merge(&[&prefix], &prefix).unwrap_err();
    assert!(matches!(error, IndexedDatasetError::OutputIsInput { .. }), "{error}");
    let error = merge::<&Path>(&[], &merged).unwrap_err();
    assert!(matches!(error, IndexedDatasetError::NothingToMerge), "{error}");
}

#[test]
fn sequences_in_any_order_are_read_and_merged() {
    let (folder, prefix) = folder();
    write(&prefix, ElementType::U16, &sample());
    let mut idx = fs::read(idx_path(&prefix)).unwrap();
    // The first sequence becomes that of tokens 4, 7, 300.
    idx[34 + 12] = 6;
    fs::write(idx_path(&prefix), idx).unwrap();
    let expected = [vec![vec![4, 7, 300], vec![4]], vec![], vec![vec![7, 300]]];
    assert_eq!(read(&prefix), expected);
    assert!(!IndexedDataset::open(&prefix).unwrap().is_contiguous());
    let merged = folder.path().join("merged");
    merge(&[&prefix], &merged).unwrap();
    assert_eq!(read(&merged), expected);
    assert!(IndexedDataset::open(&merged).unwrap().is_contiguous());
}

#[test]
fn sequences_after_the_last_document_are_read_but_not_merged() {
    let (folder, prefix) = folder();
    write(&prefix, ElementType::U16, &sample());
    let mut idx = fs::read(idx_path(&prefix)).unwrap();
    let last = idx.len() - 8;
    idx[last] = 2;
    fs::write(idx_path(&prefix), idx).unwrap();
    assert_eq!(IndexedDataset::open(&prefix).unwrap().num_documents(), 3);
    let error = merge(&[&prefix], folder.path().join("merged")).unwrap_err().to_string();
    assert!(
        error.contains("last document boundary is 2, expected 3, the number of sequences"),
        "{error}"
    );
    assert_eq!(names(&folder).len(), 2);
}
