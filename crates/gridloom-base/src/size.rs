//! Sizes of memories and disks in bytes, read and written with units.

/// Minimum of a size without a unit, in bytes: the writer of a smaller number probably meant another unit.
const WITHOUT_UNIT_MIN: u64 = 1 << 20;
const PREFIXES: [&str; 6] = ["k", "m", "g", "t", "p", "e"];

/// Returns a size with its unit, followed by the exact bytes if it is rounded: `128 GiB`, `1.50 MiB (1572865 bytes)`.
pub fn size_text(size_bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| size_bytes >= *unit) {
        None => format!("{size_bytes} bytes"),
        Some((unit, name)) if size_bytes.is_multiple_of(unit) => format!("{} {name}", size_bytes / unit),
        Some((unit, name)) => format!("{:.2} {name} ({size_bytes} bytes)", size_bytes as f64 / unit as f64),
    }
}

/// Parses a size in bytes: `8GiB`, `500 MB`, `1.5g`, `8589934592`. Prefixes are powers of 1000, with an `i` powers of
/// 1024. The case does not matter, and `B` may be omitted. A number without a unit must be at least 1 MiB.
///
/// # Errors
/// If the text has another form, or the size is below 1 byte or at least 8 EiB. The error names the value and the remedy.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let number: f64 = number.parse().map_err(|_| format!("'{text}' is not a size; write one such as 8GiB or 500MB"))?;
    let Some(factor) = unit_bytes(unit) else {
        return Err(format!("unit '{unit}' of the size '{text}' is unknown; write a size such as 8GiB or 500MB"));
    };
    let size = number * factor;
    if size >= i64::MAX as f64 {
        return Err(format!("the size '{text}' is too large; the limit is 8 EiB"));
    }
    let size = size as u64;
    if size == 0 {
        return Err(format!("the size '{text}' is less than 1 byte"));
    }
    if unit.is_empty() && size < WITHOUT_UNIT_MIN {
        return Err(format!("the size {text} has no unit and is below 1 MiB; write {text}GiB, {text}MiB or {text}B"));
    }
    Ok(size)
}

fn unit_bytes(unit: &str) -> Option<f64> {
    let unit = unit.to_ascii_lowercase();
    let prefix = unit.strip_suffix('b').unwrap_or(&unit);
    if prefix.is_empty() {
        return Some(1.0);
    }
    let (letter, base) = match prefix.strip_suffix('i') {
        Some(letter) => (letter, 1024.0_f64),
        None => (prefix, 1000.0),
    };
    let place = PREFIXES.iter().position(|known| *known == letter)?;
    Some(base.powi(place as i32 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!([1000, 1 << 20, 128 << 30].map(size_text), ["1000 bytes", "1 MiB", "128 GiB"]);
        assert_eq!(size_text((1 << 30) + 1), "1.00 GiB (1073741825 bytes)");
    }

    #[test]
    fn units_are_read_in_any_case_with_or_without_space() {
        let sizes = ["8GiB", "8 gib", "8Gi", "500MB", "500 mb", "1.5k", "1E", "7B", "1048576", " 0.5KiB "];
        let bytes = [8 << 30, 8 << 30, 8 << 30, 500_000_000, 500_000_000, 1500, 10_u64.pow(18), 7, 1 << 20, 512];
        assert_eq!(sizes.map(parse_size), bytes.map(Ok));
    }

    #[test]
    fn errors_name_the_value_and_the_remedy() {
        let wrong = [
            ("8", "below 1 MiB; write 8GiB, 8MiB or 8B"),
            ("1048575", "has no unit"),
            ("0", "less than 1 byte"),
            ("0.5B", "less than 1 byte"),
            ("8 EiB", "too large"),
            ("8 parsecs", "unit 'parsecs'"),
            ("8iB", "unit 'iB'"),
            ("much", "'much' is not a size"),
            ("-1GiB", "'-1GiB' is not a size"),
            ("1.2.3GiB", "is not a size"),
            ("", "'' is not a size"),
            ("nan", "is not a size"),
        ];
        for (text, expected) in wrong {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
