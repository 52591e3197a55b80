//! One source for equal kernels: CubeCL writes some of their parts in a random order.
//!
//! Temporary variables count through the process; types, variables and arrays in shared memory are declared, or
//! numbered, in the order of hash maps, and the arrays have their places in that order too. What compilers make of a
//! source depends on that, and what was compiled once would not be found again.

/// A kernel's source in one order.
#[derive(Debug, PartialEq)]
pub struct Canonical {
    pub text: String,
    /// The bytes of dynamic shared memory that it takes beyond those of the source as it was.
    pub more_shared_memory: isize,
}

impl Canonical {
    /// Brings a source into order.
    pub fn new(source: &str) -> Self {
        let text = with_variables_in_order(&with_types_in_order(source));
        let text = renumber(&renumber(&text, "_tmp_"), "v");
        match SharedArrays::find(&text) {
            None => Self {
                text,
                more_shared_memory: 0,
            },
            Some(arrays) => arrays.in_order(&text),
        }
    }
}

/// Declares types in the order of their declarations' letters.
fn with_types_in_order(source: &str) -> String {
    const TYPE: &str = "\nstruct __align__(";
    let mut parts = source.split(TYPE);
    let head = parts.next().unwrap_or_default();
    let mut types: Vec<&str> = parts.collect();
    // The last type is followed by everything else.
    let rest = types.last_mut().and_then(|last| {
        let end = last.find("};")? + 2;
        let (declaration, rest) = last.split_at(end);
        *last = declaration;
        Some(rest)
    });
    types.sort_unstable();
    let mut text = head.to_string();
    for declaration in types {
        text.push_str(TYPE);
        text.push_str(declaration);
    }
    text.push_str(rest.unwrap_or_default());
    text
}

/// Declares variables and fragments of matrices in the order of their numbers.
fn with_variables_in_order(text: &str) -> String {
    const NAMES: [&str; 4] = ["l_mut_", "frag_a_", "frag_b_", "frag_acc_"];
    let number = |line: &str| -> Option<u32> {
        let (kind, name) = line.strip_suffix(';')?.rsplit_once(' ')?;
        let number = NAMES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
        // Without a value: else it is an assignment.
        (!kind.contains('=')).then(|| number.parse().ok())?
    };
    let mut lines: Vec<&str> = text.split('\n').collect();
    for declarations in lines.chunk_by_mut(|one, next| number(one).is_some() && number(next).is_some()) {
        declarations.sort_by_key(|line| number(line));
    }
    lines.join("\n")
}

/// Numbers variables of a name in the order of their appearance.
fn renumber(text: &str, name: &str) -> String {
    let mut numbers = std::collections::HashMap::new();
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(name) {
        result.push_str(before);
        let end = after
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(after.len());
        let (number, tail) = after.split_at(end);
        // Words of instructions follow a dot.
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let is_within = result.ends_with(|letter| is_part(letter) || letter == '.') || tail.starts_with(is_part);
        result.push_str(name);
        if number.is_empty() || is_within {
            result.push_str(number);
        } else {
            let next = numbers.len();
            result.push_str(&numbers.entry(number).or_insert(next).to_string());
        }
        rest = tail;
    }
    result.push_str(rest);
    result
}

/// The declarations of what a kernel has in dynamic shared memory, which follow each other.
struct SharedArrays<'a> {
    /// Where they are in the source, in bytes.
    place: std::ops::Range<usize>,
    arrays: Vec<SharedArray<'a>>,
    /// To what each may have to be aligned, in bytes.
    alignment: usize,
}

/// Two lines: `// Shared array size: 4, 16 bytes` and `float *shared_memory_3 = ...(&dynamic_shared_mem[128]);`.
struct SharedArray<'a> {
    comment: &'a str,
    bytes: usize,
    number: u32,
    /// Up to its place, and from there.
    declaration: [&'a str; 2],
    offset: usize,
}

impl<'a> SharedArrays<'a> {
    fn find(text: &'a str) -> Option<Self> {
        const FIRST: &str = "uint8 dynamic_shared_mem[];\n";
        let start = text.find(FIRST)? + FIRST.len();
        let before = &text[..start];
        let alignment = &before[before.rfind("__align__(")? + "__align__(".len()..];
        let alignment = alignment.split_once(')')?.0.parse().ok()?;
        let mut rest = &text[start..];
        let mut arrays = Vec::new();
        while let Some((array, after)) = SharedArray::parse(rest) {
            arrays.push(array);
            rest = after;
        }
        Some(Self {
            place: start..text.len() - rest.len(),
            arrays,
            alignment,
        })
    }

    /// Declares them in the order of their numbers, and places them too, unless some share bytes: which of them
    /// may, the source does not say.
    fn in_order(mut self, text: &str) -> Canonical {
        self.arrays.sort_by_key(|array| array.offset);
        let shares = |pair: &[SharedArray]| pair[1].offset < pair[0].end();
        let any_shares = self.arrays.windows(2).any(shares);
        let end_before = self.end();
        self.arrays.sort_by_key(|array| array.number);
        if !any_shares {
            let mut end = 0usize;
            for array in &mut self.arrays {
                array.offset = end.next_multiple_of(self.alignment);
                end = array.end();
            }
        }
        let declarations: String = self.arrays.iter().map(SharedArray::declare).collect();
        Canonical {
            text: [&text[..self.place.start], &declarations, &text[self.place.end..]].concat(),
            more_shared_memory: self.end() as isize - end_before as isize,
        }
    }

    fn end(&self) -> usize {
        self.arrays.iter().map(SharedArray::end).max().unwrap_or(0)
    }
}

impl<'a> SharedArray<'a> {
    /// Reads one, and returns what follows it.
    fn parse(text: &'a str) -> Option<(Self, &'a str)> {
        const PLACE: &str = "dynamic_shared_mem[";
        let (comment, rest) = text.split_once('\n')?;
        let (declaration, rest) = rest.split_once('\n')?;
        let bytes = comment.strip_prefix("// Shared ")?.strip_suffix(" bytes")?;
        let bytes = bytes.rsplit_once(' ')?.1.parse().ok()?;
        let (_, number) = declaration.split_once("shared_memory_")?;
        let number = number.split_once(' ')?.0.parse().ok()?;
        let (before, after) = declaration.split_at(declaration.find(PLACE)? + PLACE.len());
        let end = after.find(']')?;
        let array = Self {
            comment,
            bytes,
            number,
            declaration: [before, &after[end..]],
            offset: after[..end].parse().ok()?,
        };
        Some((array, rest))
    }

    fn declare(&self) -> String {
        let [before, after] = self.declaration;
        format!("{}\n{before}{}{after}\n", self.comment, self.offset)
    }

    fn end(&self) -> usize {
        self.offset + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(source: &str) -> String {
        Canonical::new(source).text
    }

    #[test]
    fn the_order_of_types_and_the_numbers_of_temporaries_do_not_matter() {
        let kernel = |first: &str, second: &str, number: u32| {
            format!(
                "head\nstruct __align__(4) {first} {{ }};\nstruct __align__(4) {second} {{ }};\nbody _tmp_{number} = \
                 _tmp_{number};"
            )
        };
        assert_eq!(canonical(&kernel("a", "b", 7)), canonical(&kernel("b", "a", 12)));
        assert_ne!(canonical(&kernel("a", "b", 7)), canonical(&kernel("a", "c", 7)));
    }

    #[test]
    fn the_numbers_of_values_do_not_matter_and_instructions_keep_theirs() {
        let kernel = |first: u32, second: u32| {
            format!("int const v{first} = 1; v{second}.i_0 = v{first}; asm(\"atom.v2.f32\"); info_v{second}; uv3;")
        };
        let text = canonical(&kernel(7, 12));
        assert_eq!(
            text,
            "int const v0 = 1; v1.i_0 = v0; asm(\"atom.v2.f32\"); info_v12; uv3;"
        );
        assert_eq!(canonical(&kernel(3, 12)), text);
    }

    #[test]
    fn the_order_of_declarations_does_not_matter_and_that_of_assignments_stays() {
        let kernel =
            |declarations: &str| format!("head\n{declarations}\nl_mut_9 = l_mut_12;\nl_mut_8 = l_mut_9;\n}}\n");
        let ordered = kernel("uint32 l_mut_8;\nwmma::fragment<a, 16> frag_acc_9;\nfloat l_mut_12;");
        assert_eq!(canonical(&ordered), ordered);
        let other = kernel("float l_mut_12;\nuint32 l_mut_8;\nwmma::fragment<a, 16> frag_acc_9;");
        assert_eq!(canonical(&other), ordered);
    }

    /// A kernel with arrays in shared memory: number, bytes, place.
    fn with_arrays(arrays: &[(u32, usize, usize)]) -> String {
        let mut text = "head\nextern __shared__ __align__(16) uint8 dynamic_shared_mem[];\n".to_string();
        for (number, bytes, offset) in arrays {
            text.push_str(&format!(
                "// Shared array size: {}, {bytes} bytes\nfloat *shared_memory_{number} = \
                 reinterpret_cast<float*>(&dynamic_shared_mem[{offset}]);\n",
                bytes / 4
            ));
        }
        text + "float l_mut_8;\nshared_memory_3[0] = l_mut_8;\n}\n"
    }

    #[test]
    fn arrays_in_shared_memory_have_the_places_of_their_numbers() {
        let ordered = with_arrays(&[(3, 20, 0), (5, 64, 32), (11, 4, 96)]);
        let expected = Canonical {
            text: ordered.clone(),
            more_shared_memory: 0,
        };
        assert_eq!(Canonical::new(&ordered), expected);
        // One byte further than in order.
        let other = with_arrays(&[(11, 4, 0), (3, 20, 81), (5, 64, 16)]);
        let expected = Canonical {
            more_shared_memory: -1,
            ..expected
        };
        assert_eq!(Canonical::new(&other), expected);
    }

    #[test]
    fn arrays_that_share_a_place_keep_it() {
        let ordered = with_arrays(&[(3, 64, 0), (5, 64, 0), (11, 32, 64)]);
        let other = with_arrays(&[(11, 32, 64), (5, 64, 0), (3, 64, 0)]);
        let expected = Canonical {
            text: ordered,
            more_shared_memory: 0,
        };
        assert_eq!(Canonical::new(&other), expected);
    }
}
