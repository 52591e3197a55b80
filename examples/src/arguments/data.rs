//! Flags that say where the text comes from.

use std::path::PathBuf;

use clap::Args;

/// Where the text comes from.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Data")]
pub struct DataArguments {
    /// Files or folders of UTF-8 text [default: the Rust sources that cargo downloaded to build this program]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data_path: Vec<PathBuf>,
    /// Read at most this much text, a spread of it all: bytes, or with a unit as in 16MiB [default: 16MiB of the
    /// default sources, all of --data-path]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub data_limit: Option<u64>,
}

/// Parses a number of bytes, with or without a unit.
///
/// # Errors
/// Says what is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        unit => {
            return Err(format!("unknown unit {unit:?}: use none, KiB, MiB, GiB, KB, MB or GB"));
        }
    };
    let number: u64 = digits
        .trim()
        .parse()
        .map_err(|_| format!("{digits:?} is not a whole number"))?;
    match number.checked_mul(factor) {
        Some(0) => Err("expected at least one byte".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err(format!("{text} is more than 2^64 bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1000"), Ok(1000));
        assert_eq!(parse_size("16MiB"), Ok(16 << 20));
        assert_eq!(parse_size("2gb"), Ok(2_000_000_000));
        assert!(parse_size("0").is_err());
        assert!(parse_size("12 parsecs").is_err());
        assert!(parse_size("99999999999GiB").is_err());
    }
}
