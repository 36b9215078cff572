//! Finds known names that are similar to an unknown one, for "did you mean".

use strsim::osa_distance;

/// Returns up to three of the `known` names that `name` may have meant, nearest first. Case is ignored. `dgemm` and
/// `other/dgemm` also find `linalg/dgemm`.
pub fn near_names<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let compared = |text: &str| text.to_lowercase().chars().take(LENGTH_MAX).collect::<String>();
    let wanted = compared(name);
    let length = wanted.chars().count();
    let allowed = 1 + length / 4;
    let mut near: Vec<(usize, &str)> = known
        .filter_map(|candidate| {
            let mut distance = osa_distance(&wanted, &compared(candidate));
            if let (Some((_, function)), false) = (candidate.rsplit_once('/'), name.contains('/')) {
                distance = distance.min(osa_distance(&wanted, &compared(function)));
            }
            let named = |name: &str| name.rsplit_once('/').map(|(_, function)| compared(function));
            if named(name).is_some() && named(name) == named(candidate) {
                distance = distance.min(allowed);
            }
            (distance <= allowed && distance < length.max(1)).then_some((distance, candidate))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(NEAR_NAMES_MAX).map(|(_, candidate)| candidate.to_string()).collect()
}

/// How likely it is that an unknown name is a misspelling of a known one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resemblance<'a> {
    /// Probably a misspelling: differs by one letter.
    Misspelt(&'a str),
    /// Differs by one letter and may be a different word, such as `slot` and `slots`, or differs by two letters of a long name.
    Similar(&'a str),
}

/// Compares a name that its user may choose freely with known words. Words of up to four letters resemble too many other
/// words, so only their plural and the same letters in another order are similar.
pub fn resemblance<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<Resemblance<'a>> {
    let length = name.chars().count();
    let known: Vec<&str> = known.collect();
    let same = |word: &str| {
        let sorted = |text: &str| {
            let mut letters: Vec<char> = text.to_lowercase().chars().collect();
            letters.sort_unstable();
            letters
        };
        name != word && (sorted(name) == sorted(word) || name.strip_suffix('s') == Some(word))
    };
    if let Some(word) = known.iter().find(|word| word.chars().count() <= 4 && same(word)) {
        return Some(Resemblance::Similar(word));
    }
    let compared = known.into_iter().map(|word| (osa_distance(&name.to_lowercase(), word), word.chars().count(), word));
    let (distance, word_length, word) = compared.filter(|(distance, length, _)| *distance > 0 && *length > 4).min()?;
    let is_misspelt = match word_length {
        ..=5 => distance == 1 && length == word_length,
        _ => distance == 1,
    };
    match is_misspelt {
        true => Some(Resemblance::Misspelt(word)),
        false => (distance == 1 || distance == 2 && word_length >= 8).then_some(Resemblance::Similar(word)),
    }
}

/// Returns `; did you mean 'a' or 'b'?`, or an empty text.
pub fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = near.iter().map(|name| format!("'{name}'")).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

/// Suggestions per error. Users would not read more.
const NEAR_NAMES_MAX: usize = 3;
/// Only this many characters of each name are compared, since the time grows with the product of both lengths.
const LENGTH_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["linalg/dgemm", "linalg/sgemm", "linalg/dgesv", "image/blur"];

    fn near(name: &str) -> Vec<String> {
        near_names(name, KNOWN.into_iter())
    }

    #[test]
    fn misspellings_are_distinguished_from_other_words() {
        let words = ["serve", "slots", "memory", "plain", "packages", "agent_listen", "code", "role", "name", "port"];
        let of = |name| resemblance(name, words.into_iter());
        for (name, word) in [
            ("sreve", "serve"),
            ("slotz", "slots"),
            ("memroy", "memory"),
            ("memry", "memory"),
            ("Pakages", "packages"),
            ("agent-listen", "agent_listen"),
        ] {
            assert_eq!(of(name), Some(Resemblance::Misspelt(word)), "{name}");
        }
        for (name, word) in [
            ("slot", "slots"),
            ("server", "serve"),
            ("roel", "role"),
            ("roles", "role"),
            ("prot", "port"),
            ("plan", "plain"),
            ("agent-listens", "agent_listen"),
        ] {
            assert_eq!(of(name), Some(Resemblance::Similar(word)), "{name}");
        }
        for name in ["mode", "cost", "zone", "rule", "node", "rack", "cores", "site", "group", "place", "memories"] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn nearest_are_first() {
        assert_eq!(near("linalg/dgmem"), ["linalg/dgemm", "linalg/sgemm", "linalg/dgesv"]);
        assert_eq!(near("linalg/DGEMM")[0], "linalg/dgemm");
    }

    #[test]
    fn the_module_may_be_left_out() {
        assert_eq!(near("blur"), ["image/blur"]);
        assert_eq!(near("blru"), ["image/blur"], "an exchange of neighbours counts once");
        assert_eq!(near("__main__/blur"), ["image/blur"]);
    }

    #[test]
    fn nothing_like_it_gives_nothing() {
        assert!(near("sort/quicksort").is_empty());
        assert!(near("").is_empty());
        assert_eq!(did_you_mean(&[]), "");
        assert_eq!(did_you_mean(&near("blur")), "; did you mean 'image/blur'?");
    }
}
