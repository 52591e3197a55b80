//! [`CommandLine`]: the flags that a person gave, before they are parsed.

use super::ConfigError;
use burn_megatron::topology::ParallelConfig;

/// Words of a command line, without the program's name.
#[derive(Clone, Debug)]
pub(super) struct CommandLine {
    words: Vec<String>,
}

impl CommandLine {
    /// Takes the words up to `--`.
    pub(super) fn new(words: impl IntoIterator<Item = String>) -> Self {
        let words = words.into_iter().take_while(|word| word != "--").collect();
        Self { words }
    }

    /// Returns the value of a flag, of a repeated one the last; `true` of one without a value.
    pub(super) fn value(&self, flag: &str) -> Option<&str> {
        let place = self.words.iter().rposition(|word| name_of(word) == flag)?;
        let value = match self.words[place].split_once('=') {
            Some((_, value)) => value,
            None => match self.words.get(place + 1) {
                Some(next) if !next.starts_with("--") => next,
                _ => "true",
            },
        };
        Some(value)
    }

    /// The number of data-parallel ranks; `started` is the number of ranks of the job that a launcher has started.
    ///
    /// # Errors
    /// When a size is no number, or the sizes do not fit each other.
    pub(super) fn data_parallel_size(&self, started: Option<usize>) -> Result<u64, ConfigError> {
        let tensor = match self.size("--tensor-model-parallel-size")? {
            Some(size) => size,
            None => self.size("--model-parallel-size")?.unwrap_or(1),
        };
        let pipeline = self.size("--pipeline-model-parallel-size")?.unwrap_or(1);
        let ranks = self.size("--world-size")?.or(started);
        let parallel = ParallelConfig {
            tensor_parallel_size: tensor,
            pipeline_parallel_size: pipeline,
            ..ParallelConfig::default()
        };
        let grid = parallel.grid(ranks.unwrap_or(tensor.saturating_mul(pipeline)));
        let grid = grid.map_err(|error| ConfigError::Ranks(error.to_string()))?;
        Ok(grid.data_parallel_size() as u64)
    }

    fn size(&self, flag: &str) -> Result<Option<usize>, ConfigError> {
        let parse = |text: &str| {
            let error = |_| ConfigError::Ranks(format!("{flag} must be a whole number, got {text:?}"));
            text.parse().map_err(error)
        };
        self.value(flag).map(parse).transpose()
    }
}

/// Returns the name of the flag that a word is, with hyphens; an empty one of a value.
fn name_of(word: &str) -> String {
    if !word.starts_with("--") {
        return String::new();
    }
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    name.replace('_', "-")
}
