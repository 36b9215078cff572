//! Numbers with units, in SimGrid's notation: `2Gf`, `100Mbps`, `59.904us`. Bandwidths may end in `/s`, too.
//!
//! Case matters, and the unit follows the number without a space. Without unit: flop/s, bytes per second, seconds. Sizes: `gridloom_base::size`.
//!
//! | quantity | units | prefixes |
//! |---|---|---|
//! | speed | `f`, `flops` | k M G T P E Z Y; kilo, mega ... yotta before `flops` |
//! | bandwidth | `Bps`, `bps` (an eighth); `B/s`, `b/s` | k M G T P E Z Y (1000), Ki Mi Gi Ti Pi Ei Zi Yi (1024) |
//! | time | `w d h m s ms us ns ps` | |
//!
//! The value is number × factor, with the factor computed as SimGrid does, so that values agree to the last bit.

/// Speed in flop/s.
pub fn speed(text: &str) -> Result<f64, String> {
    parse(text, "speed", "'f' with a prefix, such as 2Gf", speed_factor)
}

/// Bandwidth in bytes per second.
pub fn bandwidth(text: &str) -> Result<f64, String> {
    parse(text, "bandwidth", "'Bps' or 'bps' with a prefix, such as 100Mbps or 1.25GBps", |unit| {
        let bytes = || unit.strip_suffix("ps").or_else(|| unit.strip_suffix("/s"));
        unit.is_empty().then_some(1.0).or_else(|| byte_factor(bytes()?))
    })
}

/// Time in seconds.
pub fn time(text: &str) -> Result<f64, String> {
    parse(text, "time", "w, d, h, m, s, ms, us, ns or ps", time_factor)
}

const PREFIXES: [(&str, &str); 8] = [
    ("k", "kilo"),
    ("M", "mega"),
    ("G", "giga"),
    ("T", "tera"),
    ("P", "peta"),
    ("E", "exa"),
    ("Z", "zetta"),
    ("Y", "yotta"),
];

fn power(base: f64, exponent: usize) -> f64 {
    (0..exponent).fold(1.0, |product, _| product * base)
}

fn speed_factor(unit: &str) -> Option<f64> {
    if matches!(unit, "" | "f" | "flops") {
        return Some(1.0);
    }
    let found = PREFIXES
        .iter()
        .position(|(short, long)| unit.strip_prefix(short) == Some("f") || unit.strip_prefix(long) == Some("flops"))?;
    Some(power(1e3, found + 1))
}

fn byte_factor(unit: &str) -> Option<f64> {
    let (prefix, scale) = match unit.strip_suffix('B') {
        Some(prefix) => (prefix, 1.0),
        None => (unit.strip_suffix('b')?, 0.125),
    };
    if prefix.is_empty() {
        return Some(scale);
    }
    let (short, base) = match prefix.strip_suffix('i') {
        Some(short) => (short, 1024.0),
        None => (prefix, 1e3),
    };
    // SimGrid accepts both k and K for 1024.
    let short = if base == 1024.0 && short == "K" { "k" } else { short };
    let found = PREFIXES.iter().position(|(letter, _)| *letter == short)?;
    Some(scale * power(base, found + 1))
}

fn time_factor(unit: &str) -> Option<f64> {
    Some(match unit {
        "w" => 7.0 * 24.0 * 60.0 * 60.0,
        "d" => 24.0 * 60.0 * 60.0,
        "h" => 60.0 * 60.0,
        "m" => 60.0,
        "s" | "" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        "ps" => 1e-12,
        _ => return None,
    })
}

fn parse(text: &str, what: &str, units: &str, factor: impl Fn(&str) -> Option<f64>) -> Result<f64, String> {
    let text = text.trim();
    let digits = number_bytes(text);
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| format!("{what} '{text}' does not start with a number"))?;
    let factor = factor(unit).ok_or_else(|| format!("unit '{unit}' of {what} '{text}' is unknown; use {units}"))?;
    let value = number * factor;
    if value.is_finite() { Ok(value) } else { Err(format!("{what} '{text}' is too large")) }
}

/// Length of the decimal number at the start: sign, digits, fraction, exponent. An `e` or `E` that no digit follows is
/// a unit (`2Ef`). Infinity and NaN are rejected.
fn number_bytes(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let sign = |at: usize| at + usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
    let mut end = digits(sign(0));
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let start = sign(end + 1);
        let after = digits(start);
        if after > start {
            end = after;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_have_their_factors() {
        assert_eq!(speed("98.095Mf"), Ok(98.095e6));
        assert_eq!(speed("2Ef"), Ok(2e18));
        assert_eq!(speed("1.5e9"), Ok(1.5e9));
        assert_eq!(speed("3gigaflops"), Ok(3e9));
        assert_eq!(bandwidth("100Mbps"), Ok(12.5e6));
        assert_eq!((bandwidth("10MB/s"), bandwidth("100Mb/s")), (Ok(1e7), Ok(12.5e6)));
        assert_eq!(bandwidth("1KiBps"), Ok(1024.0));
        assert_eq!(bandwidth("10kBps"), Ok(1e4));
        assert_eq!(time("5ms"), Ok(0.005));
        assert_eq!(time("1w"), Ok(604_800.0));
    }

    #[test]
    fn wrong_units_are_refused() {
        assert!(speed("2GF").unwrap_err().starts_with("unit 'GF' of speed '2GF' is unknown; use"));
        assert!(bandwidth("5ms").is_err());
        assert!(time("nan").unwrap_err().contains("does not start with a number"));
        assert!(speed("inf").is_err());
        assert!(speed("1e999").unwrap_err().contains("too large"));
        assert!(bandwidth("").is_err());
    }
}
