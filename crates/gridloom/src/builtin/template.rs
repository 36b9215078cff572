//! The text of one interface description for several precisions.
//!
//! What stands between `@each d s` and `@end` is there for each of these precisions, in which marks are replaced:
//! `@p` by the precision's letter, `@q` by that of its real parts, `@t`, `@r` and `@c` by its type, the real and the complex
//! one, `@s` by the type of scratch space that real routines have in whole numbers, `@w` by the name of FFTW's library,
//! `@M` and `@A` by the real operations of a multiplication and an addition. Everywhere, functions are written out:
//! `@min(a, b)`, `@max(a, b)`, `@ld(n)` (a leading dimension, 1 at least), `@is_N(flag)` (whether a flag is that letter, in
//! either case) and `@log2(n)` (rounded up).

/// The description written out.
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
    functions(text)
}

fn of_precision(block: &str, letter: &str) -> String {
    let (real, kind, real_type, complex_type) = match letter {
        "s" => ("s", "float", "float", "scomplex"),
        "c" => ("s", "scomplex", "float", "scomplex"),
        "z" => ("d", "dcomplex", "double", "dcomplex"),
        _ => ("d", "double", "double", "dcomplex"),
    };
    let is_complex = kind == complex_type;
    let (multiplication, addition) = if is_complex { ("6", "2") } else { ("1", "1") };
    // Names begin with a letter's mark, and those of functions are longer.
    let marks = [
        ("@p", letter),
        // The names of routines for complex numbers with real results: scnrm2, dznrm2.
        ("@q", real),
        ("@t", kind),
        ("@r", real_type),
        ("@c", complex_type),
        ("@s", if is_complex { real_type } else { "int" }),
        ("@w", if real == "d" { "fftw" } else { "fftwf" }),
        ("@M", multiplication),
        ("@A", addition),
    ];
    marks.iter().fold(block.to_string(), |text, (mark, value)| text.replace(mark, value))
}

/// Functions, innermost first: the last one has none within.
fn functions(mut text: String) -> String {
    while let Some((at, name, arguments, end)) = last_function(&text) {
        let written = written(&name, &arguments);
        text.replace_range(at..end, &written);
    }
    text
}

fn last_function(text: &str) -> Option<(usize, String, Vec<String>, usize)> {
    let mut end = text.len();
    while let Some(at) = text[..end].rfind('@') {
        let opening = at + text[at..].find(|letter: char| !letter.is_alphanumeric() && !"@_".contains(letter))?;
        if text[opening..].starts_with('(') {
            let closing = closing(text, opening)?;
            let arguments = split(&text[opening + 1..closing]);
            return Some((at, text[at + 1..opening].to_string(), arguments, closing + 1));
        }
        // In a comment, or a symbol's prefix.
        end = at;
    }
    None
}

fn closing(text: &str, opening: usize) -> Option<usize> {
    let mut depth = 0;
    for (at, letter) in text[opening..].char_indices() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        if depth == 0 {
            return Some(opening + at);
        }
    }
    None
}

/// At the commas that are in no parentheses.
fn split(text: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for letter in text.chars() {
        depth += i32::from(letter == '(') - i32::from(letter == ')');
        match letter {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("there is one").push(letter),
        }
    }
    parts.iter().map(|part| part.trim().to_string()).collect()
}

fn written(name: &str, arguments: &[String]) -> String {
    match (name, arguments) {
        ("min", [a, b]) => format!("({a} < {b} ? {a} : {b})"),
        ("max", [a, b]) => format!("({a} > {b} ? {a} : {b})"),
        ("ld", [n]) => format!("(({n}) > 1 ? ({n}) : 1)"),
        // Both cases of a letter end in the same 5 bits.
        (name, [flag]) if name.starts_with("is_") && name.len() == 4 => {
            format!("{flag} % 32 == {}", name.as_bytes()[3] % 32)
        }
        ("log2", [n]) => {
            let powers: Vec<String> = (0..31).map(|power| format!("({n} > {})", 1u64 << power)).collect();
            format!("({})", powers.join(" + "))
        }
        _ => panic!("@{name} with {} arguments is no mark of the built-in descriptions", arguments.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_there_for_each_precision() {
        let text = expand("a @min(n, m);\n@each s z\n@q@pf(@t x, @r y) @M+@A\n@end\nb\n");
        assert_eq!(text, "a (n < m ? n : m);\nssf(float x, float y) 1+1\ndzf(dcomplex x, double y) 6+2\nb\n");
    }

    #[test]
    fn functions_are_written_out_from_within() {
        assert_eq!(expand("@ld(@is_N(t) ? m : k)"), "((t % 32 == 14 ? m : k) > 1 ? (t % 32 == 14 ? m : k) : 1)");
        assert_eq!(expand("@log2(n)").matches('>').count(), 31);
    }
}
