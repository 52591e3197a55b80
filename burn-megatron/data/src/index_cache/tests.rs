//! Tests of `index_cache`: what is mapped, what is built again, and who builds.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tempfile::TempDir;

const VALUES: [u32; 5] = [3, 1, 4, 1, 5];
const PAIRS: [[u32; 2]; 2] = [[9, 2], [6, 5]];

fn layout() -> [ArrayLayout; 2] {
    [
        ArrayLayout::of::<u32>(VALUES.len()),
        ArrayLayout::of::<[u32; 2]>(PAIRS.len()),
    ]
}

fn build(writer: &mut IndexWriter) -> Result<(), SampleError> {
    // In pieces, as large arrays are written.
    writer.write(&VALUES[..2])?;
    writer.write(&VALUES[2..])?;
    writer.end_array()?;
    writer.write(&PAIRS)?;
    writer.end_array()
}

/// A cache, and how often its index is built.
struct Counted {
    folder: TempDir,
    builds: AtomicUsize,
}

impl Counted {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            builds: AtomicUsize::new(0),
        }
    }

    fn cache(&self) -> IndexCache {
        IndexCache::new(self.folder.path().join("cache"))
    }

    fn open(&self) -> IndexFile {
        let build = |writer: &mut IndexWriter| {
            self.builds.fetch_add(1, Ordering::SeqCst);
            build(writer)
        };
        let index = self
            .cache()
            .open_or_build("test", "what it is", &layout(), build)
            .unwrap();
        assert_eq!(*index.array::<u32>(0), VALUES);
        assert_eq!(*index.array::<[u32; 2]>(1), PAIRS);
        index
    }

    fn builds(&self) -> usize {
        self.builds.load(Ordering::SeqCst)
    }

    fn path(&self) -> PathBuf {
        self.cache().path("test", "what it is")
    }
}

#[test]
fn an_index_is_built_once_and_then_mapped() {
    let cache = Counted::new();
    for _ in 0..3 {
        cache.open();
    }
    assert_eq!(cache.builds(), 1);
}

#[test]
fn changed_and_missing_bytes_are_noticed() {
    let cache = Counted::new();
    cache.open();
    let whole = fs::read(cache.path()).unwrap();
    let mut builds = 1;
    // Padding between arrays holds nothing.
    let (places, end) = file_places();
    assert_eq!(end, whole.len());
    for byte in (0..header_bytes())
        .chain(places[0].clone())
        .chain(places[1].clone())
        .step_by(3)
    {
        let mut changed = whole.clone();
        changed[byte] ^= 0x10;
        fs::write(cache.path(), changed).unwrap();
        cache.open();
        builds += 1;
        assert_eq!(cache.builds(), builds, "byte {byte}");
    }
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(cache.path(), &whole[..length]).unwrap();
        cache.open();
        builds += 1;
        assert_eq!(cache.builds(), builds, "{length} bytes");
    }
    let longer = [&whole[..], b"x"].concat();
    fs::write(cache.path(), longer).unwrap();
    cache.open();
    assert_eq!(cache.builds(), builds + 1);
    assert_eq!(fs::read(cache.path()).unwrap(), whole);
}

fn file_places() -> (Vec<std::ops::Range<usize>>, usize) {
    file::places("what it is", &layout())
}

fn header_bytes() -> usize {
    file::header("what it is", &layout(), &[0, 0]).len()
}

#[test]
fn another_description_or_layout_is_another_index() {
    let cache = Counted::new();
    cache.open();
    let other = |description: &str, layout: &[ArrayLayout]| {
        let mut built = false;
        cache.cache().open_or_build("test", description, layout, |writer| {
            built = true;
            build(writer)
        })?;
        Ok::<_, SampleError>(built)
    };
    assert!(!other("what it is", &layout()).unwrap());
    assert!(other("what it is not", &layout()).unwrap());
    // A file with the right name and the contents of another.
    let path = cache.cache().path("test", "what it is not");
    fs::copy(cache.path(), &path).unwrap();
    assert!(other("what it is not", &layout()).unwrap());
    assert!(!other("what it is not", &layout()).unwrap());
}

#[test]
fn many_at_once_build_once() {
    let cache = Counted::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| cache.open());
        }
    });
    assert_eq!(cache.builds(), 1);
}

#[test]
fn a_failed_build_leaves_no_file_and_the_next_one_removes_what_a_killed_one_left() {
    let cache = Counted::new();
    let failed = cache.cache().open_or_build("test", "what it is", &layout(), |writer| {
        writer.write(&VALUES)?;
        Err(SampleError::setting("planted", "no fault", 0u64))
    });
    assert!(failed.is_err());
    let names = || {
        let entries = fs::read_dir(cache.cache().folder()).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let lock = cache.path().with_extension("lock");
    let lock = lock.file_name().unwrap().to_str().unwrap();
    assert_eq!(names(), [lock]);
    fs::write(cache.path().with_extension("77.0.tmp"), "half of it").unwrap();
    cache.open();
    let index = cache.path();
    assert_eq!(names(), [index.file_name().unwrap().to_str().unwrap(), lock]);
}

#[test]
fn a_lock_that_is_held_too_long_is_an_error_that_names_it() {
    let cache = Counted::new();
    fs::create_dir_all(cache.cache().folder()).unwrap();
    let lock = cache.path().with_extension("lock");
    let held = File::create(&lock).unwrap();
    held.lock().unwrap();
    let start = Instant::now();
    let waiting = cache.cache().with_lock_timeout(Duration::from_millis(60));
    let error = waiting
        .open_or_build("test", "what it is", &layout(), build)
        .unwrap_err();
    assert!(start.elapsed() >= Duration::from_millis(60));
    let message = error.to_string();
    assert!(message.contains(&lock.display().to_string()), "{message}");
    drop(held);
    cache.open();
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error_that_names_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let cache = IndexCache::next_to(&file);
    let message = cache
        .open_or_build("test", "it", &layout(), build)
        .unwrap_err()
        .to_string();
    assert!(message.contains("cache of the index cache"), "{message}");
    assert!(message.contains("--data-cache-path"), "{message}");
}
