//! Common parts of all charts: their SVG drawing ([`Canvas`]), round ticks, colours, and legible text.

mod canvas;

pub use canvas::{Anchor, Area, BELOW, CHARACTER, Canvas, EDGE, GRID, MARGIN, names_width};

/// Colours that people with colour blindness can distinguish: Paul Tol's scheme "bright", and two more.
pub const COLOURS: [&str; 8] = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#997700", "#44aa99"];
/// Colour of failures.
pub const FAILED: &str = "#bb0000";
/// Colour of axes and notes, on white.
pub const MUTED: &str = "#595959";
/// Minimum contrast of text to its background: level AA of the Web Content Accessibility Guidelines 2.2, 1.4.3.
pub const CONTRAST_MIN: f64 = 4.5;

/// Returns the smallest of 1, 2, 5 times a power of ten that is not below a number above 0.
pub fn round_above(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    // The tolerance keeps a round number unchanged despite rounding errors.
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= value * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// Returns the largest of 1, 2, 5 times a power of ten that is not above a number above 0.
pub fn round_below(value: f64) -> f64 {
    let above = round_above(value);
    if above <= value * (1.0 + 1e-9) { above } else { above / if first_digit(above) == 5 { 2.5 } else { 2.0 } }
}

fn first_digit(round: f64) -> u32 {
    (round / 10f64.powf((round.log10() + 1e-9).floor())).round() as u32
}

/// Returns multiples of 1, 2 or 5 times a power of ten, from 0 to `high`: at most `most` of them (4 or more), but at least two.
pub fn ticks(high: f64, most: u32) -> Vec<f64> {
    let step = round_above(high / f64::from(most.max(4) - 1));
    (0..).map(|number| f64::from(number) * step).take_while(|tick| *tick <= high * (1.0 + 1e-9)).collect()
}

/// Returns ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, from `low` to `high`. If these are too many,
/// returns only powers of ten, or some of them.
pub fn log_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let is_on = |tick: &f64| *tick >= low * (1.0 - 1e-9) && *tick <= high * (1.0 + 1e-9);
    let all = |digits: &'static [f64], every: i32| -> Vec<f64> {
        let powers = powers.clone().filter(move |power| power.rem_euclid(every) == 0);
        powers.flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power))).filter(is_on).collect()
    };
    let fine = all(&[1.0, 2.0, 5.0], 1);
    if fine.len() <= most {
        return fine;
    }
    (1..).map(|every| all(&[1.0], every)).find(|ticks| ticks.len() <= most.max(1)).expect("in the end there is one")
}

/// Returns the ticks of an axis that begins at 0 s, with their texts, and the unit of the texts.
pub fn time_ticks(end_s: f64, most: u32) -> (Vec<(f64, String)>, &'static str) {
    let (per_second, unit) = match end_s {
        _ if end_s < 1e-3 => (1e6, "µs"),
        _ if end_s < 1.0 => (1e3, "ms"),
        _ => (1.0, "s"),
    };
    let ticks = ticks(end_s * per_second, most);
    let step = ticks.get(1).copied().unwrap_or(1.0);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    (ticks.into_iter().map(|tick| (tick / per_second, format!("{tick:.decimals$}"))).collect(), unit)
}

/// Shortens a name to a maximum number of characters: its middle is removed, since similar names often differ at the end.
pub fn short(name: &str, chars_max: usize) -> String {
    let chars: Vec<char> = name.chars().collect();
    if chars.len() <= chars_max {
        return name.to_owned();
    }
    let end = chars_max / 2;
    let (head, tail) = (&chars[..chars_max - end - 1], &chars[chars.len() - end..]);
    head.iter().chain(&['\u{2026}']).chain(tail).collect()
}

/// Returns black or white, whichever is more legible on that colour.
pub fn ink_on(colour: &str) -> &'static str {
    if contrast("#ffffff", colour) >= CONTRAST_MIN { "#ffffff" } else { "#000000" }
}

/// Contrast of two colours such as `#44aa99`, from 1 to 21.
///
/// Source: Web Content Accessibility Guidelines 2.2, "contrast ratio" and "relative luminance":
/// `(L1 + 0.05) / (L2 + 0.05)`, `L = 0.2126 R + 0.7152 G + 0.0722 B` of linear components, the lighter colour first.
///
/// # Panics
/// If a colour is not in that format.
pub fn contrast(one: &str, other: &str) -> f64 {
    let luminance = |colour: &str| {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).expect("two hexadecimal digits")) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        assert!(colour.len() == 7 && colour.starts_with('#'), "{colour} is not a colour");
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_round(value: f64) -> bool {
        [1, 2, 5].contains(&first_digit(value)) && (round_above(value) / value - 1.0).abs() < 1e-9
    }

    #[test]
    fn ticks_are_round_and_not_too_many() {
        assert_eq!(ticks(0.2652, 6), [0.0, 0.1, 0.2]);
        assert_eq!(ticks(10.0, 6), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        for exponent in -60..60 {
            let high = 10f64.powf(f64::from(exponent) / 7.3);
            for most in 4..12 {
                let ticks = ticks(high, most);
                assert!((2..=most as usize).contains(&ticks.len()), "{high}, {most}: {ticks:?}");
                assert!(is_round(ticks[1]) && ticks[ticks.len() - 1] <= high * (1.0 + 1e-9), "{high}: {ticks:?}");
            }
            let (low, high) = (round_below(high), round_above(high));
            assert!(is_round(low) && is_round(high) && low <= high && high / low < 2.6, "{low} {high}");
        }
        assert_eq!((round_above(0.2), round_below(0.2), round_below(0.19), round_below(7.0)), (0.2, 0.2, 0.1, 5.0));
    }

    #[test]
    fn logarithmic_ticks_are_round_too() {
        assert_eq!(log_ticks(1.0, 10.0, 8), [1.0, 2.0, 5.0, 10.0]);
        assert_eq!(log_ticks(0.5, 2000.0, 8), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(log_ticks(1.0, 1e9, 4), [1.0, 1e3, 1e6, 1e9]);
        assert_eq!(log_ticks(2.0, 5.0, 8), [2.0, 5.0]);
    }

    #[test]
    fn times_have_the_unit_that_suits_and_no_more_digits_than_they_need() {
        let texts = |end_s| {
            let (ticks, unit) = time_ticks(end_s, 6);
            (ticks.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" "), unit)
        };
        assert_eq!(texts(0.2652), ("0 100 200".into(), "ms"));
        assert_eq!(texts(1.0), ("0.0 0.2 0.4 0.6 0.8 1.0".into(), "s"));
        assert_eq!(texts(3e-5), ("0 10 20 30".into(), "µs"));
    }

    #[test]
    fn a_long_name_loses_its_middle() {
        let name = short(&format!("{}{}", "a".repeat(40), "z".repeat(40)), 30);
        assert_eq!(name.chars().count(), 30);
        assert!(name.starts_with("aaaa") && name.contains('\u{2026}') && name.ends_with("zzzz"));
        assert_eq!(short("name", 4), "name");
    }

    #[test]
    fn text_can_be_read_on_all_colours() {
        assert!(
            (contrast("#000000", "#ffffff") - 21.0).abs() < 1e-9
                && (contrast("#777777", "#ffffff") - 4.48).abs() < 0.01
        );
        for colour in COLOURS.iter().chain([&FAILED, &"#ffffff"]) {
            assert!(contrast(ink_on(colour), colour) >= CONTRAST_MIN, "{colour}");
        }
        assert!(contrast(MUTED, "#ffffff") >= CONTRAST_MIN);
    }
}
