//! [`CoreSet`]: processor cores, as the operating system numbers them, and what runs on them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use crate::ranks::{numbers_of, runs_of};

/// Where the operating system describes its cores.
const CPUS: &str = "/sys/devices/system/cpu";
/// How many times threads are looked for that began while others were bound.
const ROUNDS: usize = 3;
/// The largest number of a core.
const MAX_CORE: usize = SETS * BITS - 1;
const SETS: usize = 8;
const BITS: usize = libc::CPU_SETSIZE as usize;

/// Numbers of cores; hardware threads of one core count as several. Written and read as the kernel does: `0-7,64-71`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreSet(BTreeSet<usize>);

impl CoreSet {
    /// Returns the cores that this thread may run on.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn allowed() -> io::Result<Self> {
        let mut sets = no_cores();
        // SAFETY: the sets are valid for writes of their size, and any bits are valid in them.
        let status = unsafe { libc::sched_getaffinity(0, size_of_val(&sets), sets.as_mut_ptr()) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the place in a set is below its number of bits.
        let is_in = |core: &usize| unsafe { libc::CPU_ISSET(core % BITS, &sets[core / BITS]) };
        Ok(Self((0..=MAX_CORE).filter(is_in).collect()))
    }

    /// Returns the cores that are in both.
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns whether there is no core.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the part of one of `count` processes that share these cores evenly, hardware threads of one core
    /// together; all cores where they are fewer than the processes.
    ///
    /// # Panics
    /// `index` is not below `count`.
    pub fn share(&self, index: usize, count: usize) -> Self {
        self.share_by(index, count, |core| threads_of_core(Path::new(CPUS), core))
    }

    fn share_by(&self, index: usize, count: usize, threads: impl Fn(usize) -> Self) -> Self {
        assert!(index < count, "there is no process {index} of {count}");
        let mut cores: Vec<Self> = Vec::new();
        let mut rest = self.clone();
        while let Some(&first) = rest.0.first() {
            let mut core = threads(first).and(&rest);
            core.0.insert(first);
            rest.0.retain(|number| !core.0.contains(number));
            cores.push(core);
        }
        if cores.len() < count {
            return self.clone();
        }
        let part = &cores[index * cores.len() / count..(index + 1) * cores.len() / count];
        Self(part.iter().flat_map(|core| core.0.iter().copied()).collect())
    }

    /// Lets all threads of this process run on these cores only, and those that they start.
    ///
    /// # Errors
    /// What the operating system says: there are none of these cores.
    pub fn bind_process(&self) -> io::Result<()> {
        let mut bound = BTreeSet::new();
        for _ in 0..ROUNDS {
            let before = bound.len();
            for entry in fs::read_dir("/proc/self/task")? {
                let name = entry?.file_name();
                let thread: Option<libc::pid_t> = name.to_str().and_then(|name| name.parse().ok());
                if let Some(thread) = thread
                    && bound.insert(thread)
                {
                    self.bind_thread(thread)?;
                }
            }
            if bound.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// Binds a thread of this process, 0 for the one that calls. That it has ended is no error.
    fn bind_thread(&self, thread: libc::pid_t) -> io::Result<()> {
        let mut sets = no_cores();
        for core in &self.0 {
            // SAFETY: the place in a set is below its number of bits.
            unsafe { libc::CPU_SET(core % BITS, &mut sets[core / BITS]) };
        }
        // SAFETY: the sets are valid for reads of their size.
        let status = unsafe { libc::sched_setaffinity(thread, size_of_val(&sets), sets.as_ptr()) };
        let error = io::Error::last_os_error();
        if status == 0 || error.raw_os_error() == Some(libc::ESRCH) {
            Ok(())
        } else {
            Err(error)
        }
    }
}

fn no_cores() -> [libc::cpu_set_t; SETS] {
    // SAFETY: a set is an array of numbers, and zeros are no cores.
    unsafe { std::mem::zeroed() }
}

/// The hardware threads of the core that one of them belongs to; none where the system does not say.
fn threads_of_core(cpus: &Path, core: usize) -> CoreSet {
    let path = cpus.join(format!("cpu{core}/topology/thread_siblings_list"));
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

impl FromStr for CoreSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = || format!("{text:?} is no list of cores, such as 0-7,64-71, with numbers up to {MAX_CORE}");
        numbers_of(text, MAX_CORE).map(Self).ok_or_else(invalid)
    }
}

impl fmt::Display for CoreSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = runs_of(self.0.iter().copied());
        for (number, (first, last)) in ranges.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match last - first {
                0 => write!(formatter, "{comma}{first}")?,
                _ => write!(formatter, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(text: &str) -> CoreSet {
        text.parse().expect("a list")
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for text in ["", "0", "0-1", "0-3,5,64-71"] {
            assert_eq!(cores(text).to_string(), text);
        }
        for text in ["a", "3-", "0-1000000", "-1"] {
            let error = text.parse::<CoreSet>().expect_err("no list");
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn shares_are_even_and_keep_the_threads_of_a_core_together() {
        // As two sockets number their threads: 64 above its sibling.
        let siblings = |core: usize| cores(&format!("{},{}", core % 64, core % 64 + 64));
        let node = cores("0-7,64-71");
        let share = |index, count| node.share_by(index, count, siblings).to_string();
        assert_eq!([share(0, 2), share(1, 2)], ["0-3,64-67", "4-7,68-71"]);
        assert_eq!(
            [share(0, 3), share(1, 3), share(2, 3)],
            ["0-1,64-65", "2-4,66-68", "5-7,69-71"]
        );
        assert_eq!(share(4, 9), "0-7,64-71", "there are more processes than cores");
        // One thread of each core is allowed, and the system says nothing of them.
        let alone = cores("0,2,4,6").share_by(1, 2, |_| CoreSet::default());
        assert_eq!(alone.to_string(), "4,6");
    }

    #[test]
    fn a_thread_that_is_bound_may_run_on_its_cores_only() {
        let allowed = CoreSet::allowed().expect("the system says it");
        let one = CoreSet(allowed.0.iter().take(1).copied().collect());
        assert!(!one.is_empty() && one.and(&allowed) == one);
        let bind = {
            let one = one.clone();
            move || {
                one.bind_thread(0).expect("it is allowed");
                // Those that a thread starts inherit it.
                let inherited = std::thread::spawn(CoreSet::allowed).join().expect("it does not panic");
                [CoreSet::allowed(), inherited].map(|found| found.expect("the system says it"))
            }
        };
        let found = std::thread::spawn(bind).join().expect("it does not panic");
        assert_eq!(found, [one.clone(), one]);
        assert_eq!(
            CoreSet::allowed().expect("the system says it"),
            allowed,
            "another thread was bound"
        );
        let error = CoreSet::default().bind_thread(0).expect_err("no thread runs nowhere");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}
