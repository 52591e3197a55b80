//! The text of a layer layout, as Megatron-LM's `--pipeline-model-parallel-layout`.

use std::{fmt, iter::Peekable, vec};

use super::LayerLayoutError;

/// What a text says, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symbol {
    Embedding,
    Layer,
    Head,
    Bar,
}

/// A symbol, how often, and where.
struct Item {
    symbol: Symbol,
    count: usize,
    position: usize,
}

/// The characters of a text with their positions from 1, without commas.
type Characters = Peekable<vec::IntoIter<(usize, char)>>;

/// Returns the number of layers of each of `num_virtual_stages` virtual stages.
pub(super) fn read(text: &str, n_layers: usize, num_virtual_stages: usize) -> Result<Vec<usize>, LayerLayoutError> {
    let positions = (1..).zip(text.chars());
    let characters: Vec<(usize, char)> = positions.filter(|&(_, character)| character != ',').collect();
    let end = text.chars().count() + 1;
    let mut characters = characters.into_iter().peekable();
    let mut stages = Stages::new(n_layers, num_virtual_stages);
    while let Some((position, character)) = characters.next() {
        if character != '(' {
            stages.put(&read_item(&mut characters, position, character)?)?;
            continue;
        }
        let mut group = Vec::new();
        loop {
            match characters.next() {
                None => return problem(position, "expected `)` after this `(`, got the end".to_owned()),
                Some((_, ')')) => break,
                Some((inner, '(')) => return problem(inner, "expected no group within a group".to_owned()),
                Some((inner, character)) => group.push(read_item(&mut characters, inner, character)?),
            }
        }
        if group.is_empty() {
            return problem(
                position,
                "expected something to repeat in this group, got `()`".to_owned(),
            );
        }
        let Some(count) = read_count(&mut characters)? else {
            return problem(position, "expected `*` and a number after this group".to_owned());
        };
        // However large the number, each turn puts at least one symbol, so an early one is too many.
        for _ in 0..count {
            group.iter().try_for_each(|item| stages.put(item))?;
        }
    }
    stages.finish(end)
}

fn problem<T>(position: usize, problem: String) -> Result<T, LayerLayoutError> {
    Err(LayerLayoutError::Text { position, problem })
}

/// Reads a symbol that begins with `character`, and its repetition.
fn read_item(characters: &mut Characters, position: usize, character: char) -> Result<Item, LayerLayoutError> {
    let symbol = match character {
        'E' => Symbol::Embedding,
        't' => Symbol::Layer,
        'L' => Symbol::Head,
        '|' => Symbol::Bar,
        _ => {
            let expected = "`E` (embedding), `t` (layer), `L` (head and loss), `|`, `x*n` or `(...)*n`";
            return problem(position, format!("expected {expected}, got `{character}`"));
        }
    };
    let count = read_count(characters)?.unwrap_or(1);
    Ok(Item {
        symbol,
        count,
        position,
    })
}

/// Reads `*n` if it is there.
fn read_count(characters: &mut Characters) -> Result<Option<usize>, LayerLayoutError> {
    let Some((position, _)) = characters.next_if(|&(_, character)| character == '*') else {
        return Ok(None);
    };
    let mut count: Option<usize> = None;
    while let Some((_, digit)) = characters.next_if(|(_, character)| character.is_ascii_digit()) {
        let value = digit as usize - '0' as usize;
        let Some(longer) = count
            .unwrap_or(0)
            .checked_mul(10)
            .and_then(|count| count.checked_add(value))
        else {
            return problem(
                position,
                format!("expected a number of at most {}, got a larger one", usize::MAX),
            );
        };
        count = Some(longer);
    }
    match count {
        None => problem(position, "expected a number after this `*`".to_owned()),
        Some(0) => problem(
            position,
            "expected a number of at least 1 after this `*`, got 0".to_owned(),
        ),
        count => Ok(count),
    }
}

/// What has been read so far.
struct Stages {
    n_layers: usize,
    num_virtual_stages: usize,
    /// The layers of each virtual stage; the last one is not complete.
    counts: Vec<usize>,
    total: usize,
    has_embedding: bool,
    has_head: bool,
}

impl Stages {
    fn new(n_layers: usize, num_virtual_stages: usize) -> Self {
        Self {
            n_layers,
            num_virtual_stages,
            counts: vec![0],
            total: 0,
            has_embedding: false,
            has_head: false,
        }
    }

    fn put(&mut self, item: &Item) -> Result<(), LayerLayoutError> {
        let Item {
            symbol,
            count,
            position,
        } = *item;
        if self.has_head {
            return problem(position, "expected nothing after `L`, the head and the loss".to_owned());
        }
        if self.has_embedding == (symbol == Symbol::Embedding) || (symbol == Symbol::Embedding && count > 1) {
            return problem(
                position,
                "expected `E`, the embedding, at the beginning and nowhere else".to_owned(),
            );
        }
        match symbol {
            Symbol::Embedding => self.has_embedding = true,
            Symbol::Head if count > 1 => {
                return problem(
                    position,
                    format!("expected `L`, the head and the loss, once, got {count} times"),
                );
            }
            Symbol::Head => self.has_head = true,
            Symbol::Layer => {
                let n_layers = self.n_layers;
                if count > n_layers - self.total {
                    return problem(position, format!("expected n_layers = {n_layers} layers, got more"));
                }
                self.total += count;
                if let Some(last) = self.counts.last_mut() {
                    *last += count;
                }
            }
            Symbol::Bar => {
                let most = self.num_virtual_stages;
                if count > most - self.counts.len() {
                    let rule = format!("num_stages * num_chunks = {most}");
                    return problem(position, format!("expected {rule} virtual stages, got more"));
                }
                self.counts.resize(self.counts.len() + count, 0);
            }
        }
        Ok(())
    }

    fn finish(self, end: usize) -> Result<Vec<usize>, LayerLayoutError> {
        let (n_layers, most) = (self.n_layers, self.num_virtual_stages);
        if !self.has_embedding {
            return problem(
                end,
                "expected `E`, the embedding, at the beginning, got an empty layout".to_owned(),
            );
        }
        if !self.has_head {
            return problem(end, "expected `L`, the head and the loss, at the end".to_owned());
        }
        if self.total != n_layers {
            return problem(
                end,
                format!("expected n_layers = {n_layers} layers, got {}", self.total),
            );
        }
        if self.counts.len() != most {
            let got = self.counts.len();
            let rule = format!("num_stages * num_chunks = {most}");
            return problem(end, format!("expected {rule} virtual stages, got {got}"));
        }
        Ok(self.counts)
    }
}

/// Writes the virtual stages of these numbers of layers; three or more alike in the middle as one group.
pub(super) fn write(formatter: &mut fmt::Formatter<'_>, counts: &[usize]) -> fmt::Result {
    formatter.write_str("E")?;
    let Some((last, before)) = counts.split_last() else {
        return formatter.write_str("L");
    };
    let first = before.len().min(1);
    for count in &before[..first] {
        write!(formatter, "{}|", layers(*count))?;
    }
    for run in before[first..].chunk_by(|left, right| left == right) {
        let stage = format!("{}|", layers(run[0]));
        match run.len() {
            0..3 => formatter.write_str(&stage.repeat(run.len()))?,
            length => write!(formatter, "({stage})*{length}")?,
        }
    }
    write!(formatter, "{}L", layers(*last))
}

fn layers(count: usize) -> String {
    match count {
        0..3 => "t".repeat(count),
        _ => format!("t*{count}"),
    }
}
