//! Imports go one way: between the modules of a folder there is no cycle, and a crate's folders import only from those
//! that stand before them in the lists below, which are the code map's. No folder holds more sources than a reader
//! takes in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;
use syn::visit::{self, Visit};
use syn::{Item, UseTree};

/// A crate's folder of sources, and its modules in the order in which they may import from each other.
const CRATES: [(&str, &[&str]); 9] = [
    (
        "cubecl-kernels/src",
        &[
            "precision",
            "error",
            "gradient_place",
            "row_blocks",
            "token_range",
            "random",
            "flex",
            "cube",
            "cuda",
            "operation",
            "sums",
            "tape",
            "accumulate",
            "bias_dropout_add",
            "norm",
            "cublaslt",
            "linear",
            "embedding",
            "rotary",
            "softmax",
            "flash_attention",
            "paged_attention",
            "bias_gelu",
            "swiglu",
            "cross_entropy",
            "l2_norm",
            "adamw",
            "ranges",
        ],
    ),
    (
        "cubecl-kernels/kernel_cost/src",
        &[
            "instruction",
            "gpu",
            "pipe",
            "flow",
            "hot",
            "simulate",
            "matrix",
            "grid",
            "peer",
            "listing",
            "memory",
            "attention",
            "occupancy",
            "row",
            "budget",
            "table",
        ],
    ),
    (
        "cubecl-kernels/cuda_emulator/src",
        &[
            "cache",
            "architecture",
            "resources",
            "canonical",
            "source",
            "toolkit",
            "host",
            "folder",
            "exported",
            "handles",
            "recording",
            "journal",
            "nvrtc",
            "driver",
            "cublaslt",
            "nccl",
        ],
    ),
    (
        "burn-megatron/comm/src",
        &["limits", "ranks", "flight_recorder", "launch", "collectives"],
    ),
    (
        "burn-megatron/data/src",
        &[
            "bounded_lines",
            "names",
            "json_lines",
            "tokenizer",
            "indexed_dataset",
            "preprocess",
            "programs",
            "samples",
            "weights",
            "split",
            "data_path",
            "mt19937",
            "index_cache",
            "gpt_dataset",
            "blended",
            "in_memory",
            "masked_dataset",
            "bert_dataset",
            "t5_dataset",
            "chat_dataset",
            "marks",
            "build",
            "bin",
        ],
    ),
    (
        "burn-megatron/monitoring/src",
        &[
            "scalars",
            "tensorboard",
            "prometheus",
            "timers",
            "peak",
            "nvtx",
            "profiler",
            "progress",
        ],
    ),
    (
        "burn-megatron/src",
        &[
            "topology",
            "cuda",
            "collectives",
            "launch",
            "precision",
            "device_memory",
            "offload",
            "random",
            "parameters",
            "context",
            "mappings",
            "autodiff",
            "tensor_parallel",
            "data_parallel",
            "parity",
            "sharded",
            "pipeline_parallel",
            "optimizer",
            "data",
            "checkpoint",
            "training",
            "learner",
            "prelude",
        ],
    ),
    (
        "models/src",
        &[
            "layers",
            "architecture",
            "model_config",
            "vocabulary",
            "generation",
            "scoring",
            "huggingface",
            "adapting",
            "family",
            "memory",
            "decoder",
            "gpt",
            "llama",
            "neox",
            "bloom",
            "bert",
            "t5",
            "registry",
        ],
    ),
    (
        "examples/src",
        &[
            "terminal",
            "figures",
            "svg",
            "spots",
            "json_lines",
            "run_tokenizer",
            "carried_tokenizer",
            "saved_state",
            "device",
            "layout",
            "memory_plan",
            "arguments",
            "launching",
            "loading",
            "adapting",
            "step_observer",
            "generating",
            "evaluating",
            "serving",
            "session",
            "checkpointing",
            "monitoring",
            "progress",
            "timeline",
            "measured_run",
            "deepspeed",
            "pretraining",
            "comparing",
        ],
    ),
];

/// Modules that tests alone use.
const TEST_MODULES: [&str; 3] = ["tests", "fuzzing", "rank_threads"];
/// A module of an operation of `cubecl-kernels` that tests alone use: what the operation is on the host, in f64.
const HOST_REFERENCE: &str = "host";

/// Sources that a folder holds at most, apart from its sub-folders.
const MOST_SOURCES: usize = 20;

/// Folders of what a build makes, and of burn's own tests.
const NOT_OURS: [&str; 2] = ["target", "vendored"];

/// The names from the crate's root to a module.
type Module = Vec<String>;

/// What a file imports, and what it re-exports by which name.
#[derive(Default)]
struct Imports {
    paths: Vec<Vec<String>>,
    reexports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

impl Imports {
    fn of(source: &str) -> syn::Result<Self> {
        let mut imports = Self::default();
        imports.visit_file(&syn::parse_file(source)?);
        Ok(imports)
    }

    fn add_tree(&mut self, tree: &UseTree, before: &[String], is_public: bool) {
        let path = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(inner) => self.add_tree(&inner.tree, &path(&inner.ident), is_public),
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|item| self.add_tree(item, before, is_public)),
            UseTree::Name(name) if name.ident == "self" => self.add(before.to_vec(), before.last().cloned(), is_public),
            UseTree::Name(name) => self.add(path(&name.ident), Some(name.ident.to_string()), is_public),
            UseTree::Rename(rename) => self.add(path(&rename.ident), Some(rename.rename.to_string()), is_public),
            UseTree::Glob(_) => {
                self.paths.push(before.to_vec());
                if is_public {
                    self.globs.push(before.to_vec());
                }
            }
        }
    }

    fn add(&mut self, path: Vec<String>, name: Option<String>, is_public: bool) {
        if let (true, Some(name)) = (is_public, name) {
            self.reexports.insert(name, path.clone());
        }
        self.paths.push(path);
    }
}

impl<'ast> Visit<'ast> for Imports {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Use(import) = item {
            let is_public = !matches!(import.vis, syn::Visibility::Inherited);
            self.add_tree(&import.tree, &[], is_public);
            return;
        }
        // Modules inside a file are tests.
        if !matches!(item, Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|segment| segment.ident.to_string());
        self.paths.push(names.collect());
        visit::visit_path(self, path);
    }
}

/// The modules of a crate that are files, with what they import.
struct Crate(BTreeMap<Module, Imports>);

impl Crate {
    /// Of files by their paths in the folder of sources.
    fn of(files: impl IntoIterator<Item = (PathBuf, String)>) -> syn::Result<Self> {
        let mut modules = BTreeMap::new();
        for (path, source) in files {
            let mut module: Module = path
                .with_extension("")
                .iter()
                .map(|name| name.to_string_lossy().into())
                .collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
                module.pop();
            }
            if !module.iter().any(|name| TEST_MODULES.contains(&name.as_str())) {
                modules.insert(module, Imports::of(&source)?);
            }
        }
        Ok(Self(modules))
    }

    fn read(folder: &Path) -> Self {
        let files = sources(folder).into_iter().map(|path| {
            let inside = path.strip_prefix(folder).expect("it was found there").to_owned();
            (inside, std::fs::read_to_string(&path).expect("a source"))
        });
        Self::of(files).expect("sources that compile")
    }

    /// The module of this crate in which a path ends that is written in `from`; re-exports are followed to where they
    /// lead.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (first, mut rest) = path.split_first()?;
        let mut module = match first.as_str() {
            "crate" => Module::new(),
            "self" => from.clone(),
            "super" => {
                let mut module = from.clone();
                module.pop()?;
                while rest.first().is_some_and(|name| name == "super") {
                    module.pop()?;
                    rest = &rest[1..];
                }
                module
            }
            _ => {
                rest = path;
                let child = [from.as_slice(), std::slice::from_ref(first)].concat();
                self.0.contains_key(&child).then(|| from.clone())?
            }
        };
        while let Some((name, after)) = rest.split_first() {
            let child = [module.as_slice(), std::slice::from_ref(name)].concat();
            if !self.0.contains_key(&child) {
                break;
            }
            (module, rest) = (child, after);
        }
        let imports = self.0.get(&module)?;
        if let (Some((name, after)), true) = (rest.split_first(), depth < 16) {
            if let Some(target) = imports.reexports.get(name) {
                let target = [target, after].concat();
                return Some(self.resolve(&module, &target, depth + 1).unwrap_or(module));
            }
            // A name of another crate leads nowhere here.
            let through_glob = |glob: &Vec<String>| {
                let target = self.resolve(&module, glob, depth + 1)?;
                let inside = self.0[&target].reexports.get(name)?;
                self.resolve(&target, inside, depth + 1)
            };
            if let Some(target) = imports.globs.iter().find_map(through_glob) {
                return Some(target);
            }
        }
        Some(module)
    }

    /// Which module imports from which.
    fn edges(&self) -> BTreeSet<(Module, Module)> {
        let targets = self.0.iter().flat_map(|(module, imports)| {
            let resolved = imports.paths.iter().filter_map(|path| self.resolve(module, path, 0));
            resolved.map(|target| (module.clone(), target))
        });
        targets.filter(|(module, target)| module != target).collect()
    }

    /// The imports between the modules of each folder, by the folder; a module counts with all inside it.
    fn siblings(&self) -> BTreeMap<Module, BTreeSet<(String, String)>> {
        let mut folders: BTreeMap<Module, BTreeSet<(String, String)>> = BTreeMap::new();
        for (module, target) in self.edges() {
            let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
            // Between a module and those inside it there are always imports both ways.
            if let (Some(from), Some(to)) = (module.get(shared), target.get(shared)) {
                let edges = folders.entry(module[..shared].to_vec()).or_default();
                edges.insert((from.clone(), to.clone()));
            }
        }
        folders
    }

    /// The imports of production code from modules of this name.
    fn imports_of(&self, name: &str) -> Vec<String> {
        let wrong = self
            .edges()
            .into_iter()
            .filter(|(_, target)| target.last().is_some_and(|last| last == name));
        wrong
            .map(|(module, target)| format!("{} imports from {}", module.join("::"), target.join("::")))
            .collect()
    }

    /// One cycle of each folder that has one, in words.
    fn cycles(&self) -> Vec<String> {
        let cycles = self.siblings().into_iter().filter_map(|(folder, edges)| {
            let cycle = cycle(&edges)?;
            Some(format!("in `{}`: {}", folder.join("::"), cycle.join(" → ")))
        });
        cycles.collect()
    }

    /// The imports that go against the order of the crate's modules, and modules that are not in it.
    fn against(&self, order: &[&str]) -> Vec<String> {
        let place = |name: &str| order.iter().position(|other| *other == name);
        let missing = self.0.keys().filter_map(|module| module.first());
        let missing = missing.filter(|name| place(name).is_none());
        let missing: BTreeSet<String> = missing.map(|name| format!("{name} is not in the list")).collect();
        let edges = self.siblings().remove(&Module::new()).unwrap_or_default();
        let wrong = edges.into_iter().filter(|(from, to)| place(to) > place(from));
        let wrong = wrong.map(|(from, to)| format!("{from} imports from {to}, which stands after it"));
        missing.into_iter().chain(wrong).collect()
    }
}

/// Returns the sources in a folder and in those inside it, apart from tools' folders and those of [`NOT_OURS`].
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder of sources") {
            let path = entry.expect("a file of sources").path();
            let name = path.file_name().expect("an entry has a name").to_string_lossy();
            if path.is_dir() && !NOT_OURS.contains(&&*name) && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the folders that hold too many of these sources, in words.
fn crowded(sources: impl IntoIterator<Item = PathBuf>) -> Vec<String> {
    let mut counts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for source in sources {
        *counts.entry(source.with_file_name("")).or_default() += 1;
    }
    let crowded = counts.into_iter().filter(|(_, count)| *count > MOST_SOURCES);
    crowded
        .map(|(folder, count)| format!("{}: {count} sources", folder.display()))
        .collect()
}

/// Returns the modules of a cycle, the first at the end again, if there is one.
fn cycle(edges: &BTreeSet<(String, String)>) -> Option<Vec<String>> {
    let mut left = edges.clone();
    loop {
        let starts: BTreeSet<String> = left.iter().map(|(from, _)| from.clone()).collect();
        let before = left.len();
        // What imports nothing is on no cycle.
        left.retain(|(_, to)| starts.contains(to));
        if left.len() == before {
            break;
        }
    }
    let mut path = vec![left.first()?.0.clone()];
    loop {
        let last = path.last()?;
        let next = left.iter().find(|(from, _)| from == last)?.1.clone();
        if let Some(start) = path.iter().position(|name| *name == next) {
            path.drain(..start);
            path.push(next);
            return Some(path);
        }
        path.push(next);
    }
}

pub fn trials() -> Vec<Trial> {
    tests::trials![self => [
        modules_import_one_way,
        production_code_imports_no_host_reference,
        no_folder_is_crowded,
        a_planted_cycle_is_found,
    ]]
}

fn modules_import_one_way() {
    for (folder, order) in CRATES {
        let sources = Crate::read(&tests::folder().join("..").join(folder));
        assert!(sources.edges().len() > 10, "{folder}: imports are not found");
        let found = [sources.cycles(), sources.against(order)].concat();
        assert!(found.is_empty(), "{folder}:\n{}", found.join("\n"));
    }
}

fn production_code_imports_no_host_reference() {
    let kernels = Crate::read(&tests::folder().join("../cubecl-kernels/src"));
    assert_eq!(kernels.imports_of(HOST_REFERENCE), [""; 0]);
    let planted = planted(&[
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod host; mod sizes; use sizes::Sizes;"),
        ("a/host.rs", "use super::sizes::Sizes; pub struct Inputs(Sizes);"),
        ("a/sizes.rs", "use super::host::Inputs; pub struct Sizes;"),
    ]);
    assert_eq!(planted.imports_of(HOST_REFERENCE), ["a::sizes imports from a::host"]);
}

fn no_folder_is_crowded() {
    assert_eq!(crowded(sources(&tests::folder().join(".."))), [""; 0]);
    let files = |count: usize| (0..count).map(|number| PathBuf::from(format!("a/{number}.rs")));
    let deeper = PathBuf::from("a/b/c.rs");
    assert_eq!(crowded(files(20).chain([deeper.clone()])), [""; 0]);
    assert_eq!(crowded(files(21).chain([deeper])), ["a/: 21 sources"]);
}

fn planted(files: &[(&str, &str)]) -> Crate {
    let files = files
        .iter()
        .map(|(path, source)| (PathBuf::from(path), source.to_string()));
    Crate::of(files).expect("sources that can be parsed")
}

fn a_planted_cycle_is_found() {
    let straight = [
        ("lib.rs", "mod a; mod b; pub use b::B;"),
        ("a.rs", "use crate::B; pub struct A(B);"),
        ("b/mod.rs", "mod c; mod d; pub use c::B;"),
        ("b/c.rs", "use super::d::D; pub struct B(D);"),
        ("b/d.rs", "pub struct D; #[cfg(test)] mod tests { use crate::a::A; }"),
    ];
    assert_eq!(planted(&straight).cycles(), [""; 0]);
    assert_eq!(planted(&straight).against(&["b", "a"]), [""; 0]);
    assert_eq!(
        planted(&straight).against(&["a", "b"]),
        ["a imports from b, which stands after it"]
    );
    assert_eq!(planted(&straight).against(&["b"])[0], "a is not in the list");

    let with = |path, source| {
        let mut files = straight.to_vec();
        files.iter_mut().find(|file| file.0 == path).expect("it is there").1 = source;
        planted(&files).cycles()
    };
    assert_eq!(
        with("b/d.rs", "pub struct D; fn d(b: super::c::B) {}"),
        ["in `b`: c → d → c"]
    );
    // Through a re-export, and from deep inside.
    assert_eq!(with("b/d.rs", "use crate::a::{self, A};"), ["in ``: a → b → a"]);
    assert_eq!(with("b/d.rs", "use super::B;"), ["in `b`: c → d → c"]);
}
