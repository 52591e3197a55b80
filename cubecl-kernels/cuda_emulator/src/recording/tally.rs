//! The counters: calls and bytes by kind, name and thread, and the memory that is allocated.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt::Write;

use parking_lot::Mutex;

use super::is_on;

/// By kind, name and thread: calls and bytes.
type Counters = BTreeMap<(&'static str, String, String), (u64, u64)>;

/// Memory of one place, in bytes.
#[derive(Clone, Copy, Default)]
struct Level {
    used: u64,
    peak: u64,
}

#[derive(Default)]
struct Tally {
    counters: Counters,
    memory: BTreeMap<&'static str, Level>,
}

static TALLY: Mutex<Option<Tally>> = Mutex::new(None);

/// Counts a call of this thread, while recording: `kind` and `name` as of [`Row`](super::Row), and the bytes that it
/// moves or allocates.
pub fn count(kind: &'static str, name: &str, bytes: usize) {
    if !is_on() {
        return;
    }
    let thread = thread_name();
    let mut tally = TALLY.lock();
    let counters = &mut tally.get_or_insert_default().counters;
    let (calls, all_bytes) = counters.entry((kind, name.to_owned(), thread)).or_default();
    *calls += 1;
    *all_bytes += bytes as u64;
}

/// Returns the name of this thread as the system has it, of which 15 bytes are kept; `main` of the first. The standard
/// library of this shared library knows nothing of threads that the program's has started.
fn thread_name() -> String {
    // SAFETY: both only ask.
    if unsafe { libc::gettid() == libc::getpid() } {
        return "main".to_owned();
    }
    let mut name = [0; 16];
    // SAFETY: there is room for the name and its terminating zero.
    let error = unsafe { libc::pthread_getname_np(libc::pthread_self(), name.as_mut_ptr(), name.len()) };
    if error != 0 {
        return "unnamed".to_owned();
    }
    // SAFETY: the name ends with a zero.
    unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned()
}

/// Notes how much memory of a place is allocated now.
pub fn memory_changed(place: &'static str, used: usize) {
    if !is_on() {
        return;
    }
    let mut tally = TALLY.lock();
    let level = tally.get_or_insert_default().memory.entry(place).or_default();
    level.used = used as u64;
    level.peak = level.peak.max(level.used);
}

/// Returns all counters: lines of `kind`, `name`, `thread`, `calls` and `bytes`, and of `memory`, the place, `used` and
/// `peak`, separated by tabs.
pub fn text() -> String {
    let plain = |text: &str| text.replace(['\t', '\n'], " ");
    let mut text = String::new();
    let mut tally = TALLY.lock();
    let tally = tally.get_or_insert_default();
    for ((kind, name, thread), (calls, bytes)) in &tally.counters {
        let (name, thread) = (plain(name), plain(thread));
        let _ = writeln!(text, "{kind}\t{name}\t{thread}\t{calls}\t{bytes}");
    }
    // Of this process, whether or not it allocates: a text is never empty.
    tally.memory.entry("device").or_default();
    for (place, Level { used, peak }) in &tally.memory {
        let _ = writeln!(text, "memory\t{place}\t{used}\t{peak}");
    }
    text
}
