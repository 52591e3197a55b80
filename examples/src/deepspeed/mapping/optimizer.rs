//! `optimizer`: which one, and its parameters.

use super::{Mapping, scheduler};
use crate::deepspeed::ConfigError;
use crate::deepspeed::document::Setting;

const SECTION: &str = "optimizer";
const TYPE: &str = "optimizer.type";
const PARAMS: &str = "optimizer.params";
const RATE: &str = "lr";

/// An optimizer of DeepSpeed's, or of PyTorch's by its name there.
struct Optimizer {
    /// DeepSpeed's names of it.
    types: &'static [&'static str],
    /// The value of `--optimizer`.
    name: &'static str,
    params: &'static [Param],
}

struct Param {
    key: &'static str,
    /// A flag for each of the parameter's numbers.
    flags: &'static [&'static str],
    /// DeepSpeed's default, which a section that leaves the parameter out stands for.
    default: &'static [&'static str],
}

const fn param(key: &'static str, flags: &'static [&'static str], default: &'static [&'static str]) -> Param {
    Param { key, flags, default }
}

const LEARNING_RATE: Param = param(RATE, &["--lr"], &["0.001"]);
const NO_WEIGHT_DECAY: Param = param("weight_decay", &["--weight-decay"], &["0"]);
const ADAM_BETAS: [&str; 2] = ["--adam-beta1", "--adam-beta2"];

/// The optimizers that there are here. `adam` decouples the weight decay, as DeepSpeed's Adam does by default.
const OPTIMIZERS: &[Optimizer] = &[
    Optimizer {
        types: &["adam", "adamw", "fusedadam", "deepspeedcpuadam"],
        name: "adam",
        params: &[
            LEARNING_RATE,
            param("betas", &ADAM_BETAS, &["0.9", "0.999"]),
            param("eps", &["--adam-eps"], &["1e-8"]),
            NO_WEIGHT_DECAY,
        ],
    },
    Optimizer {
        types: &["sgd"],
        name: "sgd",
        params: &[
            LEARNING_RATE,
            param("momentum", &["--sgd-momentum"], &["0"]),
            NO_WEIGHT_DECAY,
        ],
    },
    Optimizer {
        types: &["lion", "fusedlion", "deepspeedcpulion"],
        name: "lion",
        params: &[
            LEARNING_RATE,
            param("betas", &["--lion-beta1", "--lion-beta2"], &["0.9", "0.999"]),
            NO_WEIGHT_DECAY,
        ],
    },
    Optimizer {
        types: &["muon"],
        name: "muon",
        params: &[
            // Left out, DeepSpeed takes another one for each of the two kinds of parameters.
            param(RATE, &["--lr"], &[]),
            param("momentum", &["--muon-momentum"], &["0.95"]),
            param("betas", &ADAM_BETAS, &["0.9", "0.95"]),
            param("eps", &["--adam-eps"], &["1e-10"]),
            NO_WEIGHT_DECAY,
        ],
    },
    Optimizer {
        types: &["adafactor"],
        name: "adafactor",
        params: &[
            param(RATE, &["--lr"], &["0.01"]),
            param("beta2_decay", &["--adafactor-beta2-decay"], &["-0.8"]),
            param("d", &["--adafactor-clip-threshold"], &["1"]),
            NO_WEIGHT_DECAY,
        ],
    },
];

pub(super) fn map(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    let document = mapping.document;
    let name = match document.text(TYPE) {
        Setting::Is(name) => name.to_ascii_lowercase(),
        Setting::Auto => return Ok(()),
        Setting::Absent if document.has(SECTION) => {
            return Err(ConfigError::Missing {
                path: TYPE.to_owned(),
                why: format!("{SECTION} needs it; valid are {}", valid()),
            });
        }
        Setting::Absent => return Ok(()),
    };
    let is_named = |optimizer: &&Optimizer| optimizer.types.contains(&name.as_str());
    let Some(optimizer) = OPTIMIZERS.iter().find(is_named) else {
        return Err(mapping.unsupported(TYPE, format!("there is no such optimizer here; valid are {}", valid())));
    };
    mapping.add("--optimizer", optimizer.name, &[TYPE])?;
    match optimizer.name {
        "adam" => map_adam_mode(mapping, &name)?,
        "muon" => check_muon(mapping)?,
        _ => {}
    }
    for param in optimizer.params {
        map_param(mapping, param, &name)?;
    }
    Ok(())
}

fn map_param(mapping: &mut Mapping<'_>, param: &Param, name: &str) -> Result<(), ConfigError> {
    let document = mapping.document;
    let key = format!("{PARAMS}.{}", param.key);
    if param.key == RATE
        && let Some(peak) = scheduler::peak(document)
    {
        if document.number(&key) == document.number(peak) {
            mapping.use_key(&key);
        }
        mapping.remark(&key, format!("{peak} replaces it"));
        return Ok(());
    }
    match document.words(&key) {
        Setting::Is(values) => {
            for (flag, value) in param.flags.iter().zip(values) {
                // What is `"auto"` in a list is left to the flags.
                match value.as_str() {
                    r#""auto""# => mapping.use_key(&key),
                    value => mapping.add(flag, value, &[&key])?,
                }
            }
        }
        Setting::Absent => {
            let is_torch = document.bool(&format!("{PARAMS}.torch_adam")) == Setting::Is(true);
            let default = match param.key {
                // PyTorch's own default.
                "weight_decay" if is_torch && name == "adamw" => &["0.01"],
                _ => param.default,
            };
            for (flag, value) in param.flags.iter().zip(default) {
                mapping.default(flag, value, &key);
            }
        }
        Setting::Auto => {}
    }
    Ok(())
}

/// Says whether Adam adds the weight decay to the gradient; AdamW never does. The second name, of `DeepSpeedCPUAdam`,
/// counts where the first is left out.
fn map_adam_mode(mapping: &mut Mapping<'_>, name: &str) -> Result<(), ConfigError> {
    let mut modes = ["optimizer.params.adam_w_mode", "optimizer.params.adamw_mode"].into_iter();
    match modes.find_map(|mode| Some((mode, mapping.document.bool(mode).value()?))) {
        Some((mode, is_decoupled)) => {
            mapping.switch("--no-decoupled-weight-decay", name != "adamw" && !is_decoupled, mode)
        }
        None => Ok(()),
    }
}

/// Checks that both kinds of parameters have one learning rate.
fn check_muon(mapping: &mut Mapping<'_>) -> Result<(), ConfigError> {
    let document = mapping.document;
    let rate = document.number("optimizer.params.lr");
    for key in ["optimizer.params.muon_lr", "optimizer.params.adam_lr"] {
        if let Setting::Is(own) = document.number(key) {
            if rate != Setting::Is(own) {
                let why = "all parameters have one learning rate here; give the same as optimizer.params.lr";
                return Err(mapping.unsupported(key, why));
            }
            mapping.use_key(key);
        }
    }
    if rate == Setting::Absent && scheduler::peak(document).is_none() && mapping.line.value("--lr").is_none() {
        return Err(ConfigError::Missing {
            path: "optimizer.params.lr".to_owned(),
            why: "all parameters have one learning rate here, and DeepSpeed's default is two; give it, or --lr"
                .to_owned(),
        });
    }
    Ok(())
}

/// The names of all optimizers, for people.
fn valid() -> String {
    let types = OPTIMIZERS.iter().flat_map(|optimizer| optimizer.types);
    types.copied().collect::<Vec<_>>().join(", ")
}
