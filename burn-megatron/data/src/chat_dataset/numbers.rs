//! Numbers as Python writes them.

use minijinja::Value;

/// Returns a number that is no integer as Python's `repr` writes it: the fewest digits that give it back, with an
/// exponent of two digits or more below 1e-04 and from 1e+16. `None` for other values.
pub(super) fn as_float(value: &Value) -> Option<String> {
    if !value.is_number() || value.is_integer() {
        return None;
    }
    let number = f64::try_from(value.clone()).ok()?;
    if !number.is_finite() {
        return Some(number.to_string().to_lowercase());
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    Some(if (-4..16).contains(&exponent) {
        let text = number.to_string();
        if text.contains('.') { text } else { text + ".0" }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_python_writes_them() {
        for (number, expected) in [
            (1e-7, "1e-07"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (-0.0, "-0.0"),
            (2.0, "2.0"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (-1.25e20, "-1.25e+20"),
            (1e-300, "1e-300"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(as_float(&Value::from(number)).as_deref(), Some(expected));
        }
        assert_eq!(as_float(&Value::from(2)), None);
        assert_eq!(as_float(&Value::from("2.0")), None);
    }
}
