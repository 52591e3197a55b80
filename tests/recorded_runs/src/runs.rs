//! [`Run`]: the runs, each the flags of a training program and the layout of its ranks.

/// One training run.
pub struct Run {
    /// Name in the file of records.
    pub name: String,
    /// Element type: `f64`, `f32` or `bf16`.
    pub dtype: &'static str,
    /// Layout, as `compare_sharding` takes it.
    pub layout: &'static str,
    /// Flags, without those of the layout.
    pub flags: Vec<&'static str>,
}

/// Flags of every run: odd sizes, dropout, weight decay and clipping.
pub const COMMON: &str = "--num-layers 2 --hidden-size 40 --num-attention-heads 4 --seq-length 20 --micro-batch-size 3 \
    --global-batch-size 12 --train-iters 3 --hidden-dropout 0.1 --attention-dropout 0.1 --data-limit 32KiB";

/// Families, each with flags that it needs.
const FAMILIES: [(&str, &str); 6] = [
    ("gpt", ""),
    ("llama", ""),
    ("neox", "--rotary-percent 0.4"),
    ("bloom", ""),
    ("bert", ""),
    ("t5", "--decoder-seq-length 10"),
];

/// Layouts that all families take.
const FAMILY_LAYOUTS: [&str; 3] = ["tp1", "tp2", "pp2"];

/// Further layouts of the GPT.
const LAYOUTS: [&str; 7] = ["tp4", "tp2sp", "tp4sp", "dp2", "tp2dp2", "pp2dp2", "tp2sp-pp2"];

/// Settings that may change the arithmetic of a GPT, each with the layout that it is tried in.
const SETTINGS: [(&str, &str, &str); 19] = [
    ("plain-kernels", "tp1", "--no-fused-kernels"),
    ("plain-kernels", "tp2sp", "--no-fused-kernels"),
    ("untied", "pp2", "--untie-embeddings-and-output-weights"),
    ("recompute-full", "tp2sp", "--recompute-granularity full"),
    ("recompute-selective", "tp2sp", "--recompute-granularity selective"),
    ("logit-chunks", "tp1", "--logit-chunk-tokens 8"),
    ("zero1", "dp2", "--zero-stage 1"),
    ("zero2", "dp2", "--zero-stage 2"),
    ("zero3", "dp2", "--zero-stage 3"),
    ("zero1", "tp2dp2", "--zero-stage 1"),
    ("sgd", "tp1", "--optimizer sgd"),
    ("sgd", "tp2", "--optimizer sgd"),
    ("lion", "tp1", "--optimizer lion"),
    ("lion", "dp2", "--optimizer lion --zero-stage 1"),
    ("muon", "tp1", "--optimizer muon"),
    ("muon", "tp2", "--optimizer muon"),
    ("adafactor", "tp1", "--optimizer adafactor"),
    ("adafactor", "tp2", "--optimizer adafactor"),
    ("bf16", "tp1", "--bf16"),
];

/// Returns all runs.
pub fn all() -> Vec<Run> {
    let mut runs = Vec::new();
    for dtype in ["f64", "f32"] {
        let mut add = |name: &str, layout, flags: Vec<&'static str>| {
            let (name, dtype, flags) = match name {
                // Main values and moments are of f32 in either case.
                "bf16" if dtype == "f64" => return,
                "bf16" => (format!("{name} {layout}"), "bf16", flags),
                _ => (
                    format!("{name} {layout} {dtype}"),
                    dtype,
                    [vec!["--dtype", dtype], flags].concat(),
                ),
            };
            runs.push(Run {
                name,
                dtype,
                layout,
                flags,
            });
        };
        for (family, flags) in FAMILIES {
            for layout in FAMILY_LAYOUTS {
                let flags = flags.split_whitespace();
                add(
                    family,
                    layout,
                    ["--model-family", family].into_iter().chain(flags).collect(),
                );
            }
        }
        for layout in LAYOUTS {
            add("gpt", layout, Vec::new());
        }
        for (name, layout, flags) in SETTINGS {
            add(name, layout, flags.split_whitespace().collect());
        }
    }
    runs
}

/// Returns the number of ranks of a layout: the product of its sizes.
pub fn world_size(layout: &str) -> usize {
    let sizes = layout.split(|character: char| !character.is_ascii_digit());
    sizes.filter_map(|size| size.parse::<usize>().ok()).product()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_each_run_once() {
        let runs = all();
        let names: BTreeSet<&str> = runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names.len(), runs.len());
    }

    #[test]
    fn multiplies_the_sizes_of_a_layout() {
        assert_eq!(["tp1", "tp2sp-pp2", "tp2dp2"].map(world_size), [1, 4, 4]);
    }
}
