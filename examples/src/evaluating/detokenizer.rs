//! [`detokenize`]: WikiText's words and marks, which have spaces between them, as running text.

use std::sync::LazyLock;

use regex::Regex;

/// What Python's `\s` takes: Rust's leaves the four separators of ASCII out.
pub(super) const WHITE_SPACE: &str = r"[\s\x1c-\x1f]";

/// A change of the whole text.
///
/// Megatron-LM's `tasks/zeroshot_gpt` and lm-evaluation-harness's `wikitext` have the same rules in the same order.
/// Published figures are of texts that these have changed, so the odd ones are here, too.
enum Rule {
    Replace(&'static str, &'static str),
    Pattern(Regex, &'static str),
}

static RULES: LazyLock<Vec<Rule>> = LazyLock::new(rules);

fn rules() -> Vec<Rule> {
    use Rule::Replace;
    // What is between two marks loses the white space at its ends.
    let between = |open: &str, close: &str, result| {
        let space = WHITE_SPACE;
        let pattern = format!("{open}{space}*([^{close}]*?){space}*{close}");
        Rule::Pattern(Regex::new(&pattern).expect("the pattern is valid"), result)
    };
    let odd = Regex::new("/' [0-9]/").expect("the pattern is valid");
    vec![
        Replace("s '", "s'"),
        Rule::Pattern(odd, "/'[0-9]/"),
        Replace(" @-@ ", "-"),
        Replace(" @,@ ", ","),
        Replace(" @.@ ", "."),
        Replace(" : ", ": "),
        Replace(" ; ", "; "),
        Replace(" . ", ". "),
        Replace(" ! ", "! "),
        Replace(" ? ", "? "),
        Replace(" , ", ", "),
        between(r"\(", r"\)", "($1)"),
        between(r"\[", r"\]", "[$1]"),
        between(r"\{", r"\}", "{$1}"),
        between("\"", "\"", "\"$1\""),
        between("'", "'", "'$1'"),
        Replace("= = = =", "===="),
        Replace("= = =", "==="),
        Replace("= =", "=="),
        Replace(" \u{b0} ", "\u{b0}"),
        Replace(" \n", "\n"),
        Replace("\n ", "\n"),
        Replace(" N ", " 1 "),
        Replace(" 's", "'s"),
    ]
}

/// Returns a text of WikiText as running text.
pub(super) fn detokenize(text: &str) -> String {
    RULES.iter().fold(text.to_owned(), |text, rule| match rule {
        Rule::Replace(from, to) => text.replace(from, to),
        Rule::Pattern(pattern, result) => pattern.replace_all(&text, *result).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results are those of Python's `re` and `str.replace` with the same rules.
    #[test]
    fn texts_become_what_the_published_rules_make_of_them() {
        for (text, expected) in [
            (
                " = Robert Boulter = \n \n Robert Boulter is an English film , television and theatre actor . \n",
                " = Robert Boulter =\n\nRobert Boulter is an English film, television and theatre actor.\n",
            ),
            (
                "It was 1 @,@ 000 @.@ 5 m @-@ long : yes ; no ! why ? so",
                "It was 1,000.5 m-long: yes; no! why? so",
            ),
            ("a ( b c ) d [ e ] f { g } h", "a (b c) d [e] f {g} h"),
            (
                "she said \" no way \" to ' him ' once",
                "she said \"no way\" to 'him' once",
            ),
            (" = = = Title = = = \n", " === Title ===\n"),
            (
                "the dogs ' bowl and the cat 's at 5 \u{b0} C , N times",
                "the dogs'bowl and the cat's at 5\u{b0}C, 1 times",
            ),
            ("x /' 5/ y and N of", "x /'[0-9]/ y and 1 of"),
            ("( a \" b ) c \" d", "(a \"b) c\" d"),
            ("a =  = b = = = = = c", "a =  = b ===== c"),
            ("''' x ' y", "'''x' y"),
            ("(( a ) b )", "(( a) b )"),
            ("\" \" \"", "\"\" \""),
        ] {
            assert_eq!(detokenize(text), expected, "{text:?}");
        }
    }
}
