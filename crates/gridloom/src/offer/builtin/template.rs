//! Expands an interface description for several precisions.
//!
//! The text between `@each d s` and `@end` is repeated for each of these precisions, with these marks replaced: `@p` by
//! the precision's letter, `@q` by that of its real parts; `@t`, `@r` and `@c` by its type, its real type and its
//! complex type; `@s` by the type of the scratch space that is integer in real routines; `@w` by the name of FFTW's
//! library; `@T` and `@H` by the letters of its operations in symmetric updates and in least squares; `@M` and `@A` by
//! the numbers of real operations of a multiplication and an addition. Everywhere, `@is_N(flag)` expands to a test
//! whether a flag is that letter in either case, and `@one(NTC)` to a list of the allowed letters in both cases.

/// Returns the expanded description.
pub(super) fn expand(template: &str) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("@each ") {
        text.push_str(before);
        let (letters, block) = after.split_once('\n').expect("@each ends with its line");
        let (block, behind) = block.split_once("@end\n").expect("@each has its @end");
        for letter in letters.split_whitespace() {
            text.push_str(&of_precision(block, letter));
        }
        rest = behind;
    }
    text.push_str(rest);
    functions(listed(text))
}

/// Expands lists of letters for a flag, in both cases.
fn listed(mut text: String) -> String {
    while let Some(at) = text.find(ONE) {
        let (letters, _) = text[at + ONE.len()..].split_once(')').expect("its parenthesis closes");
        let end = at + ONE.len() + letters.len() + 1;
        let written = format!("values in \"{letters}{}\"", letters.to_lowercase());
        text.replace_range(at..end, &written);
    }
    text
}

const ONE: &str = "@one(";

fn of_precision(block: &str, letter: &str) -> String {
    let (real, kind, real_type, complex_type) = match letter {
        "s" => ("s", "float", "float", "scomplex"),
        "c" => ("s", "scomplex", "float", "scomplex"),
        "z" => ("d", "dcomplex", "double", "dcomplex"),
        _ => ("d", "double", "double", "dcomplex"),
    };
    let is_complex = kind == complex_type;
    let (multiplication, addition) = if is_complex { ("6", "2") } else { ("1", "1") };
    // A mark may be followed by the rest of a routine's name; the longer `@is_` and `@one` begin with none of these marks.
    let marks = [
        ("@p", letter),
        // Routines for complex numbers with real results: scnrm2, dznrm2.
        ("@q", real),
        ("@t", kind),
        ("@r", real_type),
        ("@c", complex_type),
        ("@s", if is_complex { real_type } else { "int" }),
        ("@w", if real == "d" { "fftw" } else { "fftwf" }),
        ("@M", multiplication),
        ("@A", addition),
        // Letters of the operations of symmetric updates and least squares.
        ("@T", if is_complex { "NT" } else { "NTC" }),
        ("@H", if is_complex { "NC" } else { "NT" }),
    ];
    marks.iter().fold(block.to_string(), |text, (mark, value)| text.replace(mark, value))
}

/// Expands tests of a flag's letter: both cases of a letter have the same 5 low bits.
fn functions(mut text: String) -> String {
    while let Some(at) = text.find(IS) {
        let call = &text[at + IS.len()..];
        let (letter, rest) = call.split_once('(').expect("@is_ has an argument");
        let (flag, _) = rest.split_once(')').expect("its parenthesis closes");
        assert!(letter.len() == 1, "@is_{letter} is no mark of the built-in descriptions");
        let end = at + IS.len() + letter.len() + flag.len() + 2;
        let written = format!("{flag} % 32 == {}", letter.as_bytes()[0] % 32);
        text.replace_range(at..end, &written);
    }
    text
}

const IS: &str = "@is_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_there_for_each_precision() {
        let text = expand("a min(n, m);\n@each s z\n@q@pf(@t x, @r y) @M+@A\n@end\nb\n");
        assert_eq!(text, "a min(n, m);\nssf(float x, float y) 1+1\ndzf(dcomplex x, double y) 6+2\nb\n");
    }

    #[test]
    fn letters_are_listed_in_both_cases() {
        assert_eq!(expand("IN char uplo @one(UL), IN int n"), "IN char uplo values in \"ULul\", IN int n");
    }

    #[test]
    fn operations_are_those_of_the_precision() {
        let text = expand("@each d z\n@one(@T) @one(@H)\n@end\n");
        assert_eq!(text, "values in \"NTCntc\" values in \"NTnt\"\nvalues in \"NTnt\" values in \"NCnc\"\n");
    }

    #[test]
    fn functions_are_written_out() {
        assert_eq!(expand("max(1, @is_N(t) ? @is_L(s) : k)"), "max(1, t % 32 == 14 ? s % 32 == 12 : k)");
    }
}
