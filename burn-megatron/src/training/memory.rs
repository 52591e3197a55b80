//! Memory of a process that trains on the CPU: what it has allocated and may allocate, and how freed memory is kept.
//!
//! A training program calls [`keep_freed_memory`] first thing, makes [`CountingAllocator`] its global allocator and
//! asks [`peak_bytes`]: CPU backends have no figure of their own. Buffers that the ranks of a node share are no
//! allocator's, and are counted where they are made: each by the rank that owns it.

use std::alloc::{GlobalAlloc, Layout};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::collectives::shared_memory_bytes;

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// A global allocator that counts the bytes another one hands out.
///
/// ```
/// use burn_megatron::training::memory::{CountingAllocator, peak_bytes};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);
///
/// let numbers = vec![1u8; 1 << 20];
/// assert!(peak_bytes() >= numbers.len());
/// ```
#[derive(Debug, Default)]
pub struct CountingAllocator<A>(pub A);

/// The most bytes that were allocated at once, in shared buffers of this process or by the allocator; 0 where
/// [`CountingAllocator`] is not the global allocator.
pub fn peak_bytes() -> usize {
    PEAK.load(Relaxed)
}

/// Restarts [`peak_bytes`] with what is allocated now.
pub fn restart_peak() {
    PEAK.store(CURRENT.load(Relaxed), Relaxed);
}

/// The bytes that are allocated now; 0 where [`CountingAllocator`] is not the global allocator.
pub fn allocated_bytes() -> usize {
    CURRENT.load(Relaxed)
}

/// The bytes of memory that the processes of this machine have together, or of this container, where the system tells:
/// the least of what is built in and of the limits of the control groups (versions 1 and 2) that this process is in.
pub fn machine_bytes() -> Option<u64> {
    machine_bytes_of(Path::new("/"))
}

/// As [`machine_bytes`], of the system whose `proc` and `sys` are in this folder.
fn machine_bytes_of(root: &Path) -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(root.join(path)).ok();
    let built_in = read(Path::new("proc/meminfo")).and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    });
    let groups = read(Path::new("proc/self/cgroup")).unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        // `0::/path` of version 2, `5:cpu,memory:/path` of version 1.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (mounts, file) = match controllers {
            "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"][..], "memory.max"),
            several if several.split(',').any(|name| name == "memory") => {
                (&["sys/fs/cgroup/memory"][..], "memory.limit_in_bytes")
            }
            _ => (&[][..], ""),
        };
        // Groups within groups; in a container its own may be mounted as the outermost.
        let groups = Path::new(path.trim_start_matches('/')).ancestors();
        groups.flat_map(move |group| mounts.iter().map(move |mount| Path::new(mount).join(group).join(file)))
    });
    let limits = limits.filter_map(|path| read(&path)?.trim().parse::<u64>().ok());
    limits.chain(built_in).min()
}

/// The bytes of memory that this process may have by itself (`ulimit -v`, `ulimit -d`), if they are limited.
pub fn process_bytes() -> Option<u64> {
    let limit = |resource| {
        let mut limit = libc::rlimit {
            rlim_cur: libc::RLIM_INFINITY,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the pointer is to a value of the type that the call fills.
        let is_known = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
        (is_known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    };
    [limit(libc::RLIMIT_AS), limit(libc::RLIMIT_DATA)]
        .into_iter()
        .flatten()
        .min()
}

/// The words of a failed allocation, which then ends the process.
static NEED: OnceLock<String> = OnceLock::new();

/// Lets an allocation that fails in [`CountingAllocator`] end this process with code 1 and a message, in which `need`
/// says what the run needs and what to change; a failed allocation aborts the process otherwise. An allocation that may
/// fail, as of [`Vec::try_reserve`], ends it as well. The first call counts.
pub fn explain_failed_allocations(need: String) {
    let _ = NEED.set(need);
}

/// Ends the process if that is asked for. Allocates nothing.
#[cold]
fn failed(size: usize) {
    if let Some(need) = NEED.get() {
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(
            stderr,
            "error: out of memory: {size} bytes cannot be allocated, and {} are; {need}",
            CURRENT.load(Relaxed)
        );
        // SAFETY: ends the process at once; what would run at its end might allocate.
        unsafe { libc::_exit(1) }
    }
}

/// Lets the system allocator keep what is freed, instead of giving it back and asking for it again.
///
/// A training step frees and allocates the same large tensors over and over. If they are given back, every page of them
/// is faulted in and cleared again. That was 40% of the step time of the bundled GPT on two cores. This has no effect
/// if the C library is not glibc.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const GIB: libc::c_int = 1 << 30;
        /// The largest that older versions of glibc take.
        const LARGEST_OF_OLD: libc::c_int = 32 << 20;
        // SAFETY: mallopt has no memory-safety conditions. A value that it refuses leaves the default in force.
        unsafe {
            let is_set = libc::mallopt(libc::M_MMAP_THRESHOLD, GIB) == 1
                || libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_OF_OLD) == 1;
            if is_set {
                libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
                libc::mallopt(libc::M_TOP_PAD, 64 << 20);
            }
        }
    }
}

fn add(bytes: usize) {
    // A shared buffer that is made shows with the next allocation, which is never far.
    let now = CURRENT.fetch_add(bytes, Relaxed) + bytes + shared_memory_bytes();
    if now > PEAK.load(Relaxed) {
        PEAK.fetch_max(now, Relaxed);
    }
}

fn remove(bytes: usize) {
    CURRENT.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call goes to the inner allocator with its arguments unchanged; counting touches two atomics only.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are the inner allocator's.
        let pointer = unsafe { self.0.alloc(layout) };
        if pointer.is_null() {
            failed(layout.size());
        } else {
            add(layout.size());
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are the inner allocator's.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        if pointer.is_null() {
            failed(layout.size());
        } else {
            add(layout.size());
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the inner allocator's.
        unsafe { self.0.dealloc(pointer, layout) };
        remove(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's obligations are the inner allocator's.
        let moved = unsafe { self.0.realloc(pointer, layout, new_size) };
        if moved.is_null() {
            failed(new_size);
        } else {
            remove(layout.size());
            add(new_size);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_has_the_least_of_its_limits() {
        let of = |files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            machine_bytes_of(root.path())
        };
        let machine = ("proc/meminfo", "MemFree: 1 kB\nMemTotal:    8000 kB\n");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[machine]), Some(8_192_000));
        let inner = ("proc/self/cgroup", "0::/pod/main\n");
        let max = "sys/fs/cgroup/pod/main/memory.max";
        assert_eq!(of(&[machine, inner, (max, "max\n")]), Some(8_192_000));
        assert_eq!(of(&[machine, inner, (max, "4096\n")]), Some(4096));
        // An outer group, and one that is the outermost in its own view.
        let outer = ("sys/fs/cgroup/pod/memory.max", "2048");
        assert_eq!(of(&[machine, inner, (max, "4096"), outer]), Some(2048));
        let own = ("proc/self/cgroup", "0::/");
        assert_eq!(of(&[machine, own, ("sys/fs/cgroup/memory.max", "1024\n")]), Some(1024));
        let first = (
            "proc/self/cgroup",
            "5:cpu,cpuacct:/a\n4:hugetlb,memory:/docker/0f\n0::/\n",
        );
        let limit = "sys/fs/cgroup/memory/docker/0f/memory.limit_in_bytes";
        assert_eq!(of(&[machine, first, (limit, "512\n")]), Some(512));
        let mounted = "sys/fs/cgroup/memory/memory.limit_in_bytes";
        assert_eq!(
            of(&[machine, first, (mounted, "9223372036854771712\n")]),
            Some(8_192_000)
        );
        assert_eq!(of(&[machine, first, (mounted, "256\n")]), Some(256));
    }
}
