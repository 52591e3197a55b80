//! `DataPath`: the prefixes of a `--data-path`, with or without weights.

use std::path::{Path, PathBuf};

use crate::indexed_dataset::idx_path;
use crate::samples::SampleError;

/// Data sets by prefix, and how much of each.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPath {
    /// Prefixes of `.bin` and `.idx`.
    pub prefixes: Vec<String>,
    /// A weight above 0 for each prefix, of which the ratios count; `None` if each is taken by its size.
    pub weights: Option<Vec<f64>>,
}

impl DataPath {
    /// Reads what follows `--data-path`: one prefix, several prefixes, or a weight before each prefix.
    ///
    /// # Errors
    /// There is nothing, a prefix is empty or without a weight where others have one, or a weight is without a prefix
    /// or not above 0; the error names the part.
    ///
    /// # Reference
    /// Megatron-LM's `--data-path`, which takes a weight without a prefix for a prefix.
    pub fn parse<S: AsRef<str>>(tokens: &[S]) -> Result<Self, SampleError> {
        let tokens: Vec<&str> = tokens.iter().map(|token| token.as_ref().trim()).collect();
        let wrong = |index: usize, problem| SampleError::DataPath {
            token: tokens.get(index).copied().unwrap_or_default().to_owned(),
            place: index + 1,
            problem,
        };
        if tokens.is_empty() {
            return Err(wrong(0, "is missing"));
        }
        if let Some(empty) = tokens.iter().position(|token| token.is_empty()) {
            return Err(wrong(empty, "is empty"));
        }
        // One number alone is a prefix, as a folder of data may be called.
        let has_weights = tokens.len() > 1 && as_number(tokens[0]).is_some();
        if !has_weights {
            let number = tokens.iter().skip(1).position(|token| as_number(token).is_some());
            if let Some(before) = number {
                return Err(wrong(before + 1, "is a weight, and the first prefix has none"));
            }
            let prefixes = tokens.into_iter().map(str::to_owned).collect();
            return Ok(Self {
                prefixes,
                weights: None,
            });
        }
        let (mut prefixes, mut weights) = (vec![], vec![]);
        for (pair, tokens) in tokens.chunks(2).enumerate() {
            let weight =
                as_number(tokens[0]).ok_or_else(|| wrong(2 * pair, "should be a weight, as the first is one"))?;
            if !weight.is_finite() || weight <= 0.0 {
                return Err(wrong(2 * pair, "is not a finite weight above 0"));
            }
            let Some(&prefix) = tokens.get(1) else {
                return Err(wrong(2 * pair, "is a weight without a prefix after it"));
            };
            weights.push(weight);
            prefixes.push(prefix.to_owned());
        }
        Ok(Self {
            prefixes,
            weights: Some(weights),
        })
    }
}

/// Returns what follows `--data-path` without `.bin` and `.idx` after prefixes of data sets, and with the data sets or
/// files that a pattern (`data/*_document`) matches in its place, sorted. Names of both files of a data set, one after
/// the other, are one.
///
/// # Errors
/// A pattern matches nothing, or several after a weight; the error names it.
pub fn expand<S: AsRef<str>>(tokens: &[S]) -> Result<Vec<String>, SampleError> {
    let mut expanded: Vec<String> = vec![];
    let has_weights = tokens.len() > 1 && as_number(tokens[0].as_ref()).is_some();
    for (place, token) in (1..).zip(tokens) {
        let token = token.as_ref();
        let prefix = prefix(Path::new(token));
        if prefix.is_some() || Path::new(token).exists() || !token.contains(['*', '?', '[']) {
            let path = prefix.unwrap_or_else(|| token.to_owned());
            let is_other_half = path != token && expanded.last() == Some(&path);
            if !is_other_half {
                expanded.push(path);
            }
            continue;
        }
        let wrong = |problem| SampleError::DataPath {
            token: token.to_owned(),
            place,
            problem,
        };
        let found = matches(token).ok_or_else(|| wrong("is no pattern"))?;
        match found.len() {
            0 => return Err(wrong("matches no data set and no file")),
            2.. if has_weights => return Err(wrong("matches several, and a weight is for one")),
            _ => expanded.extend(found),
        }
    }
    Ok(expanded)
}

/// Returns the prefix of a data set that is named by it or by one of its files.
fn prefix(path: &Path) -> Option<String> {
    let is_half = path
        .extension()
        .is_some_and(|extension| extension == "bin" || extension == "idx");
    let without = path.with_extension("");
    let prefixes = [Some(path), is_half.then_some(&*without)];
    let prefix = prefixes
        .into_iter()
        .flatten()
        .find(|prefix| idx_path(prefix).is_file())?;
    prefix.to_str().map(str::to_owned)
}

/// Returns the data sets that a pattern matches, or, if there are none, the files; `None` if it is no pattern.
fn matches(pattern: &str) -> Option<Vec<String>> {
    let mut paths: Vec<PathBuf> = vec![];
    for pattern in [pattern.to_owned(), format!("{pattern}.idx")] {
        paths.extend(glob::glob(&pattern).ok()?.filter_map(Result::ok));
    }
    let mut found: Vec<String> = paths.iter().filter_map(|path| prefix(path)).collect();
    if found.is_empty() {
        found = paths
            .iter()
            .filter_map(|path| path.to_str().map(str::to_owned))
            .collect();
    }
    found.sort();
    found.dedup();
    Some(found)
}

/// Numbers begin as such: `nan` and `infinity`, which Rust reads as numbers too, are prefixes.
fn as_number(token: &str) -> Option<f64> {
    let is_number = token.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    token.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<DataPath, String> {
        let tokens: Vec<&str> = text.split(' ').filter(|token| !token.is_empty()).collect();
        DataPath::parse(&tokens).map_err(|error| error.to_string())
    }

    #[test]
    fn weights_stand_before_prefixes_or_nowhere() {
        let path = |prefixes: &[&str], weights: Option<&[f64]>| DataPath {
            prefixes: prefixes.iter().map(|&prefix| prefix.into()).collect(),
            weights: weights.map(<[f64]>::to_vec),
        };
        assert_eq!(parse("a").unwrap(), path(&["a"], None));
        assert_eq!(parse("7").unwrap(), path(&["7"], None));
        assert_eq!(parse("a b").unwrap(), path(&["a", "b"], None));
        assert_eq!(parse("nan b c").unwrap(), path(&["nan", "b", "c"], None));
        assert_eq!(parse("0.3 a").unwrap(), path(&["a"], Some(&[0.3])));
        assert_eq!(parse("0.3 a 70 b").unwrap(), path(&["a", "b"], Some(&[0.3, 70.0])));
        // A prefix may look like a number where a prefix must stand.
        assert_eq!(parse("1 2 3 4").unwrap(), path(&["2", "4"], Some(&[1.0, 3.0])));
    }

    #[test]
    fn errors_name_the_part() {
        for (text, part) in [
            ("", "\"\" at place 1 is missing"),
            ("0.3 a b", "\"b\" at place 3 should be a weight"),
            ("0.3 a b c", "\"b\" at place 3 should be a weight"),
            ("0.3 a 0.7", "\"0.7\" at place 3 is a weight without a prefix"),
            ("a 0.3", "\"0.3\" at place 2 is a weight, and the first prefix has none"),
            ("a b 0.3 c", "\"0.3\" at place 3 is a weight"),
            ("-1 a", "\"-1\" at place 1 is not a finite weight above 0"),
            ("1 a 0 b", "\"0\" at place 3 is not a finite weight above 0"),
            ("1 a 1e999 b", "\"1e999\" at place 3 is not a finite weight above 0"),
        ] {
            let message = parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
        let message = DataPath::parse(&["a", " "]).unwrap_err().to_string();
        assert!(message.contains("\"\" at place 2 is empty"), "{message}");
    }

    #[test]
    fn files_of_data_sets_and_patterns_name_prefixes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["a.bin", "a.idx", "b_document.bin", "b_document.idx", "c.txt", "d.bin"] {
            std::fs::write(path(name), "").unwrap();
        }
        let expanded = |tokens: &[&str]| {
            let tokens: Vec<String> = tokens.iter().map(|token| token.replace('@', &path(""))).collect();
            let expanded = expand(&tokens).map_err(|error| error.to_string())?;
            Ok::<_, String>(
                expanded
                    .iter()
                    .map(|token| token.replace(&path(""), "@"))
                    .collect::<Vec<_>>(),
            )
        };
        for (tokens, expected) in [
            (&["@a"][..], &["@a"][..]),
            (&["@a.bin"], &["@a"]),
            (
                &["@a.bin", "@a.idx", "@b_document.bin", "@b_document.idx"],
                &["@a", "@b_document"],
            ),
            (&["@a", "@a"], &["@a", "@a"]),
            (&["0.3", "@a.idx", "0.7", "@b_*"], &["0.3", "@a", "0.7", "@b_document"]),
            (&["@*"], &["@a", "@b_document"]),
            (&["@*_document"], &["@b_document"]),
            (&["@*.txt"], &["@c.txt"]),
            (&["@d.bin", "@none"], &["@d.bin", "@none"]),
        ] {
            assert_eq!(expanded(tokens).unwrap(), expected, "{tokens:?}");
        }
        let message = expanded(&["0.3", "@*"]).unwrap_err();
        assert!(
            message.contains("at place 2 matches several, and a weight is for one"),
            "{message}"
        );
        let message = expanded(&["@x*"]).unwrap_err();
        assert!(message.contains("matches no data set and no file"), "{message}");
    }
}
