//! `Layout`: how many ranks share what, as written on the command line: `tp2`, `tp2sp`, `dp4`, `tp2dp2`,
//! `pp2v2`, `tp2sp-pp2-dp2`.
//!
//! Parsed from `--layouts`; also the layout's name in tables, pictures and messages.

use std::fmt;
use std::str::FromStr;

/// What may be written, for messages.
const VALID_FORM: &str = "a layout is made of tpN (N tensor-parallel ranks), sp (sequence parallelism, needs tpN), ppN \
                          (N pipeline stages), vN (N chunks per stage, needs ppN) and dpN (N data-parallel ranks), \
                          each at most once, with hyphens where they help, as in tp2, tp2sp, dp2, pp2v2 or \
                          tp2sp-pp2-dp2";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Ranks that share each layer.
    pub tensor_parallel_size: usize,
    /// Whether they shard the activations between parallel regions along the tokens.
    pub sequence_parallel: bool,
    /// Stages that the layers are cut into.
    pub pipeline_parallel_size: usize,
    /// Chunks per stage.
    pub num_chunks: usize,
    /// Ranks, or groups of ranks, that see different samples.
    pub data_parallel_size: usize,
}

impl Layout {
    /// One rank, which all others are compared with.
    pub const ONE_RANK: Layout = Layout {
        tensor_parallel_size: 1,
        sequence_parallel: false,
        pipeline_parallel_size: 1,
        num_chunks: 1,
        data_parallel_size: 1,
    };

    /// What a person calls it.
    pub fn title(&self) -> String {
        match self.world_size() {
            1 => "one rank".to_owned(),
            _ => self.to_string(),
        }
    }

    pub fn world_size(&self) -> usize {
        self.tensor_parallel_size
            .saturating_mul(self.pipeline_parallel_size)
            .saturating_mul(self.data_parallel_size)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tensor, data) = (self.tensor_parallel_size, self.data_parallel_size);
        let (pipeline, chunks) = (self.pipeline_parallel_size, self.num_chunks);
        if tensor > 1 || (data == 1 && pipeline == 1) {
            write!(formatter, "tp{tensor}")?;
        }
        if self.sequence_parallel {
            formatter.write_str("sp")?;
        }
        if pipeline > 1 {
            write!(formatter, "pp{pipeline}")?;
        }
        if chunks > 1 {
            write!(formatter, "v{chunks}")?;
        }
        if data > 1 {
            write!(formatter, "dp{data}")?;
        }
        Ok(())
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid = |what: String| format!("{what} in layout {text:?}: {VALID_FORM}");
        if text.is_empty() {
            return Err(format!("empty layout: {VALID_FORM}"));
        }
        let (mut tensor, mut sequence, mut pipeline, mut chunks, mut data) = (None, None, None, None, None);
        let mut rest = text;
        while !rest.is_empty() {
            if rest.len() < text.len() {
                rest = rest.strip_prefix('-').unwrap_or(rest);
            }
            let part = Part::take(&mut rest).map_err(invalid)?;
            let (slot, size) = match (part.name, part.size) {
                ("tp", Some(size)) => (&mut tensor, size),
                ("pp", Some(size)) => (&mut pipeline, size),
                ("v", Some(size)) => (&mut chunks, size),
                ("dp", Some(size)) => (&mut data, size),
                ("sp", None) => (&mut sequence, 1),
                ("tp" | "dp" | "pp" | "v", None) => return Err(invalid(format!("{} without a number", part.name))),
                ("sp", Some(_)) => return Err(invalid("sp with a number".to_owned())),
                (name, _) => return Err(invalid(format!("unknown part {name:?}"))),
            };
            if slot.replace(size).is_some() {
                return Err(invalid(format!("{} twice", part.name)));
            }
        }
        if sequence.is_some() && tensor.is_none_or(|size| size == 1) {
            return Err(invalid("sp without tp2 or more".to_owned()));
        }
        if chunks.is_some_and(|size| size > 1) && pipeline.is_none_or(|size| size == 1) {
            return Err(invalid("v without pp2 or more".to_owned()));
        }
        Ok(Layout {
            tensor_parallel_size: tensor.unwrap_or(1),
            sequence_parallel: sequence.is_some(),
            pipeline_parallel_size: pipeline.unwrap_or(1),
            num_chunks: chunks.unwrap_or(1),
            data_parallel_size: data.unwrap_or(1),
        })
    }
}

/// A name and the number after it, if there is one.
struct Part<'a> {
    name: &'a str,
    size: Option<usize>,
}

impl<'a> Part<'a> {
    /// Takes the first part of `rest`: letters up to a known name or the next digit, then digits.
    fn take(rest: &mut &'a str) -> Result<Self, String> {
        let is_letter = |c: char| !c.is_ascii_digit();
        let letters = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
        let known = ["tp", "sp", "dp", "pp", "v"]
            .into_iter()
            .find(|name| rest.starts_with(name));
        let (name, tail) = rest.split_at(known.map_or(letters, str::len));
        let digits = tail.find(is_letter).unwrap_or(tail.len());
        let (number, tail) = tail.split_at(digits);
        *rest = tail;
        let size = match number.parse() {
            _ if number.is_empty() => None,
            Ok(0) => return Err(format!("{name}0, which is no rank at all,")),
            Ok(size) => Some(size),
            Err(_) => return Err(format!("{name}{number}, which is too many ranks,")),
        };
        Ok(Self { name, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(tensor_parallel_size: usize, sequence_parallel: bool, data_parallel_size: usize) -> Layout {
        Layout {
            tensor_parallel_size,
            sequence_parallel,
            data_parallel_size,
            ..Layout::ONE_RANK
        }
    }

    fn stages(pipeline_parallel_size: usize, num_chunks: usize, layout: Layout) -> Layout {
        Layout {
            pipeline_parallel_size,
            num_chunks,
            ..layout
        }
    }

    #[test]
    fn layouts_are_read_and_written_the_same() {
        for (text, expected) in [
            ("tp1", layout(1, false, 1)),
            ("tp2", layout(2, false, 1)),
            ("tp2sp", layout(2, true, 1)),
            ("dp4", layout(1, false, 4)),
            ("tp2dp2", layout(2, false, 2)),
            ("tp4spdp16", layout(4, true, 16)),
            ("pp2", stages(2, 1, layout(1, false, 1))),
            ("pp2v2", stages(2, 2, layout(1, false, 1))),
            ("tp2sppp4v3dp2", stages(4, 3, layout(2, true, 2))),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
            assert_eq!(expected.to_string(), text);
        }
    }

    #[test]
    fn parts_come_in_any_order() {
        assert_eq!("dp2tp2sp".parse(), Ok(layout(2, true, 2)));
        assert_eq!("sptp2".parse(), Ok(layout(2, true, 1)));
        assert_eq!("tp1dp2".parse(), Ok(layout(1, false, 2)));
        assert_eq!("tp2sp-pp2-dp2".parse(), Ok(stages(2, 1, layout(2, true, 2))));
    }

    #[test]
    fn errors_name_the_layout_and_what_is_valid() {
        for (text, what) in [
            ("", "empty layout"),
            ("tp", "tp without a number"),
            ("tp2dp", "dp without a number"),
            ("tp0", "tp0, which is no rank at all,"),
            ("dp99999999999999999999", "too many ranks"),
            ("tp2tp2", "tp twice"),
            ("tp2sp2", "sp with a number"),
            ("sp", "sp without tp2 or more"),
            ("tp1sp", "sp without tp2 or more"),
            ("pp", "pp without a number"),
            ("tp2v2", "v without pp2 or more"),
            ("pp2v", "v without a number"),
            ("-tp2", "unknown part \"-tp\""),
            ("tp2--dp2", "unknown part \"-dp\""),
            ("tp2-", "unknown part \"\""),
            ("cp2", "unknown part \"cp\""),
            ("2", "unknown part \"\""),
            ("tp2 dp2", "unknown part \" dp\""),
            ("tp2é", "unknown part \"é\""),
        ] {
            let message = text.parse::<Layout>().expect_err(text);
            assert!(message.contains(what), "{text}: {message}");
            assert!(message.contains(&format!("{text:?}")) || text.is_empty(), "{message}");
            assert!(message.contains("as in tp2, tp2sp"), "{message}");
        }
    }
}
