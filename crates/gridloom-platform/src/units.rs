//! Numbers with units, in SimGrid's notation: `2Gf`, `100Mbps`, `59.904us`. In addition, bandwidths may end in `/s`, and a space may
//! precede the unit.
//!
//! Case matters. Without unit: flop/s, bytes per second, seconds. Sizes: `gridloom_base::size`.
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

/// Speed in flop/s of a command-line option. A number without a unit must be at least 1 Mflop/s: a smaller number probably
/// lacks its unit. Platform files may contain any speed.
pub fn stated_speed(text: &str) -> Result<f64, String> {
    let flops = speed(text)?;
    let text = text.trim();
    if flops <= 0.0 {
        return Err(format!("the speed '{text}' is not above 0; write one such as 20Gf"));
    }
    if flops < WITHOUT_UNIT_MIN_FLOPS && number_bytes(text) == text.len() {
        return Err(format!(
            "the speed {text} has no unit and is below 1 Mflop/s; write {text}Gf, {text}Mf or {text}f"
        ));
    }
    Ok(flops)
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

const WITHOUT_UNIT_MIN_FLOPS: f64 = 1e6;

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
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
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
    fn a_space_may_precede_the_unit() {
        assert_eq!((speed(" 20 Gf "), speed("20 gigaflops")), (Ok(2e10), Ok(2e10)));
        assert_eq!((bandwidth("100 Mbps"), bandwidth("10 MB/s"), time("5 ms")), (Ok(12.5e6), Ok(1e7), Ok(0.005)));
        assert!(bandwidth("100 M bps").is_err() && speed("2 0Gf").is_err());
    }

    #[test]
    fn a_small_speed_without_a_unit_is_rejected() {
        assert_eq!((stated_speed("20 Gf"), stated_speed("2e9"), stated_speed("20f")), (Ok(2e10), Ok(2e9), Ok(20.0)));
        for text in ["20", " 999999 ", "1.5"] {
            let error = stated_speed(text).unwrap_err();
            let text = text.trim();
            assert!(
                error.contains(&format!("the speed {text} has no unit and is below 1 Mflop/s; write {text}Gf")),
                "{error}"
            );
        }
        assert!(stated_speed("0Gf").unwrap_err().contains("not above 0"));
        assert!(stated_speed("-1Gf").unwrap_err().contains("not above 0"));
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
