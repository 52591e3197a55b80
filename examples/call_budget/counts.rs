//! [`Counts`]: calls by kind, name and thread; [`Parts`]: what of them each layer and each micro-batch costs.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use cuda_emulator::recording::{Recorded, Row};
use serde::{Deserialize, Serialize};

/// What is counted of calls of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Count {
    pub calls: f64,
    pub bytes: f64,
}

impl Count {
    fn map(self, other: Self, join: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            calls: join(self.calls, other.calls),
            bytes: join(self.bytes, other.bytes),
        }
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        *self = self.map(other, |a, b| a + b);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// As of [`Row`].
    pub kind: String,
    /// As of [`Row`].
    pub name: String,
    /// As of [`Row`].
    pub thread: String,
}

impl From<&Row> for Key {
    fn from(row: &Row) -> Self {
        Self {
            kind: row.kind.clone(),
            name: row.name.clone(),
            thread: row.thread.clone(),
        }
    }
}

/// Calls by kind, name and thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(Key, Count)>", into = "Vec<(Key, Count)>")]
pub struct Counts(BTreeMap<Key, Count>);

impl From<Vec<(Key, Count)>> for Counts {
    fn from(counts: Vec<(Key, Count)>) -> Self {
        Self(counts.into_iter().collect())
    }
}

impl From<Counts> for Vec<(Key, Count)> {
    fn from(counts: Counts) -> Self {
        counts.0.into_iter().collect()
    }
}

impl Counts {
    /// Returns what was called after `before`, until `after`.
    pub fn between(before: &Recorded, after: &Recorded) -> Self {
        let counts = |recorded: &Recorded| {
            let count = |&(calls, bytes): &(u64, u64)| Count {
                calls: calls as f64,
                bytes: bytes as f64,
            };
            Self(
                recorded
                    .calls
                    .iter()
                    .map(|(row, counted)| (row.into(), count(counted)))
                    .collect(),
            )
        };
        counts(after).without(&counts(before))
    }

    /// Returns these counts less others.
    pub fn without(&self, other: &Self) -> Self {
        self.join(other, |a, b| a - b)
    }

    /// Returns the mean of `n` such.
    pub fn divided_by(&self, n: f64) -> Self {
        self.join(self, |a, _| a / n)
    }

    fn times(&self, n: f64) -> Self {
        self.join(self, |a, _| a * n)
    }

    fn join(&self, other: &Self, join: impl Fn(f64, f64) -> f64) -> Self {
        let of = |counts: &Self, key: &Key| counts.0.get(key).copied().unwrap_or_default();
        let keys = self.0.keys().chain(other.0.keys());
        let joined = keys.map(|key| (key.clone(), of(self, key).map(of(other, key), &join)));
        Self(joined.collect())
    }

    /// Returns each count that is not zero.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, Count)> {
        let counts = self.0.iter().map(|(key, count)| (key, *count));
        counts.filter(|(_, count)| count.calls.abs() > 1e-9 || count.bytes.abs() > 1e-9)
    }

    /// Returns the sum over calls of a class.
    pub fn total(&self, class: &Class) -> Count {
        self.sum(|key| class.has(key))
    }

    /// Returns the sum over calls of a class and a name, of all threads.
    pub fn of_name(&self, class: &Class, name: &str) -> Count {
        self.sum(|key| class.has(key) && key.name == name)
    }

    /// Returns the calls of several kinds.
    pub fn calls_of(&self, kinds: &[&str]) -> f64 {
        self.sum(|key| kinds.contains(&key.kind.as_str())).calls
    }

    pub fn bytes_of(&self, kind: &str, name: &str) -> f64 {
        self.sum(|key| key.kind == kind && key.name == name).bytes
    }

    fn sum(&self, is_wanted: impl Fn(&Key) -> bool) -> Count {
        let mut sum = Count::default();
        self.iter()
            .filter(|(key, _)| is_wanted(key))
            .for_each(|(_, count)| sum += count);
        sum
    }
}

/// Calls that are budgeted together.
#[derive(Debug)]
pub struct Class {
    /// What they are called in tables and budgets.
    pub name: &'static str,
    kind: &'static str,
    /// What names begin with.
    names: &'static str,
}

impl Class {
    const fn new(name: &'static str, kind: &'static str, names: &'static str) -> Self {
        Self { name, kind, names }
    }

    /// All classes, in the order of tables.
    pub const ALL: [Self; 13] = [
        Self::new("kernels", "launch", ""),
        Self::new("matmuls", "matmul", ""),
        Self::new("NCCL calls", "nccl", ""),
        Self::new("copies from the host", "copy", "host to device"),
        Self::new("copies to the host", "copy", "device to host"),
        Self::new("copies on the device", "copy", "device to device"),
        Self::new("memsets", "memset", ""),
        Self::new("waits of the host", "host wait", ""),
        Self::new("event records", "record", ""),
        Self::new("waits of streams", "wait", ""),
        Self::new("module loads", "module", ""),
        Self::new("allocations", "allocation", ""),
        Self::new("frees", "free", ""),
    ];

    /// Whether bytes are of interest.
    pub fn moves_bytes(&self) -> bool {
        ["nccl", "copy", "memset", "allocation", "free"].contains(&self.kind)
    }

    #[cfg(test)]
    pub fn example(&self) -> Key {
        let [kind, name, thread] = [self.kind, self.names, "main"].map(str::to_owned);
        Key { kind, name, thread }
    }

    pub fn has(&self, key: &Key) -> bool {
        key.kind == self.kind && key.name.starts_with(self.names)
    }
}

/// A recorded step's layers on this rank and micro-batches.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub layers: f64,
    pub micro_batches: f64,
}

/// A step's counts, by what they grow with.
#[derive(Clone, Debug)]
pub struct Parts {
    pub per_layer_and_micro_batch: Counts,
    /// Of each micro-batch, outside the layers.
    pub per_micro_batch: Counts,
    /// Of each layer, whatever the micro-batches.
    pub per_layer: Counts,
    pub per_step: Counts,
}

impl Parts {
    /// Takes apart counts of steps of `size`, and of steps with `more` layers, micro-batches, or both.
    pub fn of(size: Size, more: Size, [least, layers, micro_batches, both]: [&Counts; 4]) -> Self {
        let more_layers = layers.without(least).divided_by(more.layers);
        let more_micro_batches = micro_batches.without(least).divided_by(more.micro_batches);
        let per_layer_and_micro_batch = both
            .without(micro_batches)
            .divided_by(more.layers)
            .without(&more_layers)
            .divided_by(more.micro_batches);
        let per_layer = more_layers.without(&per_layer_and_micro_batch.times(size.micro_batches));
        let per_micro_batch = more_micro_batches.without(&per_layer_and_micro_batch.times(size.layers));
        let per_step = least
            .without(&more_layers.times(size.layers))
            .without(&per_micro_batch.times(size.micro_batches));
        Self {
            per_layer_and_micro_batch,
            per_micro_batch,
            per_layer,
            per_step,
        }
    }

    /// Returns the parts with their names in tables and budgets.
    pub fn named(&self) -> [(&'static str, &Counts); 4] {
        [
            ("layer and micro-batch", &self.per_layer_and_micro_batch),
            ("micro-batch", &self.per_micro_batch),
            ("layer", &self.per_layer),
            ("step", &self.per_step),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_apart_by_what_they_grow_with() {
        let key = Key {
            kind: "launch".to_owned(),
            name: "add".to_owned(),
            thread: "main".to_owned(),
        };
        let of = |layers: f64, micro_batches: f64| {
            let calls = 30.0 * layers * micro_batches + 35.0 * micro_batches + 72.0 * layers + 25.0;
            Counts::from(vec![(
                key.clone(),
                Count {
                    calls,
                    bytes: 2.0 * calls,
                },
            )])
        };
        let sizes = |layers, micro_batches| Size { layers, micro_batches };
        let counts = [of(2.0, 4.0), of(3.0, 4.0), of(2.0, 6.0), of(3.0, 6.0)];
        let parts = Parts::of(sizes(2.0, 4.0), sizes(1.0, 2.0), counts.each_ref());
        let calls = parts.named().map(|(_, counts)| counts.total(&Class::ALL[0]));
        assert_eq!(calls.map(|count| count.calls), [30.0, 35.0, 72.0, 25.0]);
        assert_eq!(calls.map(|count| count.bytes), [60.0, 70.0, 144.0, 50.0]);
    }
}
