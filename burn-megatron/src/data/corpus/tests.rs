//! Tests of `corpus` on small folders.

use super::*;
use std::time::Instant;
use tempfile::TempDir;

/// A folder with the given files.
fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

fn config(folder: &TempDir) -> CorpusConfig {
    CorpusConfig::new(vec![folder.path().to_path_buf()])
}

fn paths(corpus: &Corpus) -> Vec<&str> {
    let documents = corpus.documents().iter();
    documents.map(|document| document.path.as_str()).collect()
}

/// Twenty files of ten bytes.
fn twenty() -> TempDir {
    let names: Vec<String> = (0..20).map(|i| format!("{:02}/text.rs", i)).collect();
    let files: Vec<(&str, &[u8])> = names
        .iter()
        .map(|name| (name.as_str(), b"0123456789" as &[u8]))
        .collect();
    folder(&files)
}

#[test]
fn folders_are_filtered_by_extension() {
    let folder = folder(&[
        ("a.rs", b"a"),
        ("b.MD", b"b"),
        ("deep/er/c.txt", b"c"),
        ("d.png", b"d"),
        ("rs", b"e"),
    ]);
    let mut config = config(&folder);
    config.extensions = vec!["rs".into(), "md".into()];
    let corpus = Corpus::load(&config).unwrap();
    let mut found = paths(&corpus);
    found.sort();
    assert_eq!(found, ["a.rs", "b.MD"]);
}

#[test]
fn a_named_file_is_always_taken() {
    let folder = folder(&[("notes.unknown", b"text")]);
    let path = folder.path().join("notes.unknown");
    let corpus = Corpus::load(&CorpusConfig::new(vec![path])).unwrap();
    assert_eq!(paths(&corpus), ["notes.unknown"]);
    assert_eq!(corpus.documents()[0].text, "text");
}

#[test]
fn the_order_is_the_same_below_any_folder_and_is_not_alphabetical() {
    let (here, there) = (twenty(), twenty());
    let here = Corpus::load(&config(&here)).unwrap();
    let there = Corpus::load(&config(&there)).unwrap();
    assert_eq!(here, there);
    assert!(!paths(&here).is_sorted());
    // The documented order, so that no later version changes it unnoticed.
    let digests = paths(&here).into_iter().map(Sha256::digest);
    assert!(digests.is_sorted());
}

#[test]
fn a_further_file_moves_no_other() {
    let folder = twenty();
    let before = Corpus::load(&config(&folder)).unwrap();
    fs::write(folder.path().join("new.rs"), "new").unwrap();
    let after = Corpus::load(&config(&folder)).unwrap();
    let mut kept = paths(&after);
    kept.retain(|&path| path != "new.rs");
    assert_eq!(kept, paths(&before));
}

#[test]
fn the_limit_keeps_the_beginning_of_the_order() {
    let folder = twenty();
    let whole = Corpus::load(&config(&folder)).unwrap();
    let limited = CorpusConfig {
        limit_bytes: Some(75),
        ..config(&folder)
    };
    let limited = Corpus::load(&limited).unwrap();
    assert_eq!(limited.num_bytes(), 75);
    assert_eq!(paths(&limited), paths(&whole)[..8]);
    assert_eq!(limited.documents()[7].text, "01234");
}

#[test]
fn the_limit_never_cuts_a_character() {
    let folder = folder(&[("a.txt", "aüü".as_bytes())]);
    for (limit, text) in [(1, "a"), (2, "a"), (3, "aü"), (4, "aü"), (5, "aüü"), (6, "aüü")] {
        let config = CorpusConfig {
            limit_bytes: Some(limit),
            ..config(&folder)
        };
        assert_eq!(Corpus::load(&config).unwrap().documents()[0].text, text);
    }
}

#[test]
fn files_that_are_not_utf8_are_skipped_and_counted_and_empty_ones_skipped() {
    let folder = folder(&[
        ("bad.txt", b"ab\xFFcd"),
        ("cut.txt", b"ab\xC3"),
        ("empty.txt", b""),
        ("good.txt", b"good"),
    ]);
    let corpus = Corpus::load(&config(&folder)).unwrap();
    assert_eq!(paths(&corpus), ["good.txt"]);
    assert_eq!(corpus.num_not_utf8(), 2);
}

#[cfg(unix)]
#[test]
fn symbolic_links_inside_folders_are_not_followed() {
    use std::os::unix::fs::symlink;
    let folder = folder(&[("a.txt", b"a")]);
    symlink(folder.path(), folder.path().join("loop")).unwrap();
    symlink(folder.path().join("a.txt"), folder.path().join("b.txt")).unwrap();
    symlink("nowhere", folder.path().join("broken.txt")).unwrap();
    let corpus = Corpus::load(&config(&folder)).unwrap();
    assert_eq!(paths(&corpus), ["a.txt"]);
}

#[test]
fn a_missing_path_is_an_error_that_names_it() {
    let config = CorpusConfig::new(vec!["/nowhere/at/all".into()]);
    let error = Corpus::load(&config).unwrap_err();
    assert!(error.to_string().starts_with("cannot read /nowhere/at/all: "));
}

#[test]
fn a_corpus_without_documents_is_an_error() {
    let folder = folder(&[("a.png", b"a"), ("b.txt", b""), ("c.txt", b"\xFF")]);
    let error = Corpus::load(&config(&folder)).unwrap_err();
    let DataError::EmptyCorpus {
        num_files,
        num_not_utf8,
        ..
    } = error
    else {
        panic!("another error: {error}");
    };
    assert_eq!((num_files, num_not_utf8), (2, 1));
}

#[test]
fn the_hash_sees_text_order_and_boundaries_but_not_paths() {
    let hash = |texts: &[&str]| {
        let document = |(i, text): (usize, &&str)| Document {
            path: i.to_string(),
            text: text.to_string(),
        };
        Corpus::from_documents(texts.iter().enumerate().map(document).collect()).hash()
    };
    let hashes = [
        hash(&["ab", "c"]),
        hash(&["a", "bc"]),
        hash(&["c", "ab"]),
        hash(&["abc"]),
        hash(&["abd"]),
    ];
    for (i, a) in hashes.iter().enumerate() {
        assert!(!hashes[i + 1..].contains(a));
    }
    let renamed = Document {
        path: "renamed".into(),
        text: "abc".into(),
    };
    assert_eq!(Corpus::from_documents(vec![renamed]).hash(), hashes[3]);
    // SHA-256 of 3u64, little-endian, and "abc", by Python's hashlib.
    assert_eq!(hashes[3], HASH_OF_ABC);
}

/// `int.from_bytes(sha256(b"\3\0\0\0\0\0\0\0abc").digest()[:8], "little")`
const HASH_OF_ABC: u64 = 12482009956949463502;

#[test]
fn registry_sources_are_every_registry_of_the_cargo_home() {
    let home = folder(&[
        ("registry/src/b/crate-1.0.0/src/lib.rs", b"b"),
        ("registry/src/a/crate-1.0.0/src/lib.rs", b"a"),
        ("registry/src/stray-file", b""),
    ]);
    let source = home.path().join("registry/src");
    let found = registry_sources(home.path()).unwrap();
    assert_eq!(found, [source.join("a"), source.join("b")]);
    // The same crate in two registries is two documents, in the registries' order.
    let corpus = Corpus::load(&CorpusConfig::new(found)).unwrap();
    let texts = corpus.documents().iter().map(|document| &document.text);
    assert_eq!(texts.collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_missing_registry_is_an_error_that_names_the_flag() {
    let empty = folder(&[]);
    let without_crates = folder(&[("registry/src/stray-file", b"")]);
    for home in [empty, without_crates] {
        let message = registry_sources(home.path()).unwrap_err().to_string();
        assert!(message.contains("--data-path"), "{message}");
        assert!(message.contains(home.path().to_str().unwrap()), "{message}");
    }
}

/// Prints how long the default corpus takes; run it by hand.
#[test]
#[ignore = "a measurement: cargo test --release -- --ignored --nocapture default_corpus"]
fn default_corpus_loads_quickly() {
    let mut config = CorpusConfig::cargo_registry().unwrap();
    for limit_bytes in [config.limit_bytes, None] {
        config.limit_bytes = limit_bytes;
        let start = Instant::now();
        let corpus = Corpus::load(&config).unwrap();
        let loaded = start.elapsed();
        let hash = corpus.hash();
        println!(
            "limit {limit_bytes:?}: {} documents, {} bytes, {} not UTF-8, loaded in {loaded:?}, \
             hash {hash:016x} in {:?}",
            corpus.documents().len(),
            corpus.num_bytes(),
            corpus.num_not_utf8(),
            start.elapsed() - loaded
        );
    }
}

#[test]
fn one_long_text_becomes_many_documents_with_the_same_content() {
    let text: String = (0..1000).map(|i| format!("line {i}\n")).collect();
    let whole = Corpus::from_documents(vec![Document {
        path: "book.txt".into(),
        text: text.clone(),
    }]);
    let pieces = whole.with_documents(40);
    let count = pieces.documents().len();
    assert!((36..=40).contains(&count), "{count}");
    let joined: String = pieces.documents().iter().map(|d| d.text.as_str()).collect();
    assert_eq!(joined, text);
    assert!(pieces.documents().iter().all(|d| d.text.ends_with('\n')));
    // Enough documents stay as they are.
    assert_eq!(pieces.clone().with_documents(20), pieces);
}
