//! [`GroupConfig`]: how a group is made, NCCL included.

use serde::{Deserialize, Serialize};

use super::{CollectiveError, EngineChoice, GroupOptions, ProcessGroup};

/// How a group is made. The same on every rank of the group, except for the GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfig {
    /// Which engine moves the bytes of host memory.
    pub engine: EngineChoice,
    /// The number of this rank's CUDA device, whose tensors go over NCCL instead of through host memory; each rank has
    /// a GPU of its own. Not over NCCL if not given. Needs the feature `cuda`.
    pub nccl_gpu: Option<usize>,
}

impl GroupConfig {
    /// Returns the configuration whose engine is chosen when a group is made, without NCCL.
    pub const fn new() -> Self {
        Self {
            engine: EngineChoice::Auto,
            nccl_gpu: None,
        }
    }

    /// Sets [`engine`](Self::engine).
    pub const fn with_engine(self, engine: EngineChoice) -> Self {
        Self { engine, ..self }
    }

    /// Sets [`nccl_gpu`](Self::nccl_gpu).
    pub const fn with_nccl_gpu(self, nccl_gpu: Option<usize>) -> Self {
        Self { nccl_gpu, ..self }
    }
}

impl GroupOptions for GroupConfig {
    fn engine(&self) -> EngineChoice {
        self.engine
    }

    /// Refuses a GPU for NCCL in a program that is built without it.
    fn check(&self) -> Result<(), String> {
        match self.nccl_gpu {
            Some(index) if !cfg!(feature = "cuda") => Err(format!(
                "CUDA device {index} was to use NCCL, which needs burn-megatron's feature `cuda`"
            )),
            _ => Ok(()),
        }
    }

    fn attach(&self, group: &ProcessGroup) -> Result<(), CollectiveError> {
        #[cfg(feature = "cuda")]
        if let Some(index) = self.nccl_gpu {
            super::nccl::attach(group, index)?;
        }
        let _ = group;
        Ok(())
    }
}
