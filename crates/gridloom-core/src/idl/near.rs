//! Names like a wrong one, for "did you mean".

/// Up to three of the `known` names that `name` may have meant, nearest first. Case does not count; `dgemm` also finds
/// `linalg/dgemm`.
pub fn near_names<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let wanted: Vec<char> = name.to_lowercase().chars().take(LENGTH_MAX).collect();
    let allowed = 1 + wanted.len() / 4;
    let mut near: Vec<(usize, &str)> = known
        .filter_map(|candidate| {
            let lower = candidate.to_lowercase();
            let mut distance = edit_distance(&wanted, &lower);
            if let (Some((_, function)), false) = (lower.rsplit_once('/'), name.contains('/')) {
                distance = distance.min(edit_distance(&wanted, function));
            }
            (distance <= allowed && distance < wanted.len().max(1)).then_some((distance, candidate))
        })
        .collect();
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(NEAR_NAMES_MAX).map(|(_, candidate)| candidate.to_string()).collect()
}

/// `; did you mean 'a' or 'b'?`, or nothing.
pub fn did_you_mean(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = near.iter().map(|name| format!("'{name}'")).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

/// Insertions, deletions, replacements and exchanges of neighbours that turn one into the other.
fn edit_distance(left: &[char], right: &str) -> usize {
    let right: Vec<char> = right.chars().take(LENGTH_MAX).collect();
    let mut rows = vec![(0..=right.len()).collect::<Vec<usize>>()];
    for (i, a) in left.iter().enumerate() {
        let above = &rows[i];
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut cost = (above[j] + usize::from(a != b)).min(above[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                cost = cost.min(rows[i - 1][j - 1] + 1);
            }
            row.push(cost);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}

/// More would not be read.
const NEAR_NAMES_MAX: usize = 3;
/// Longer names are compared by their beginning, so that the table stays small.
const LENGTH_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = ["linalg/dgemm", "linalg/sgemm", "linalg/dgesv", "image/blur"];

    fn near(name: &str) -> Vec<String> {
        near_names(name, KNOWN.into_iter())
    }

    #[test]
    fn nearest_come_first() {
        assert_eq!(near("linalg/dgmem"), ["linalg/dgemm", "linalg/sgemm", "linalg/dgesv"]);
        assert_eq!(near("linalg/DGEMM")[0], "linalg/dgemm");
    }

    #[test]
    fn the_module_may_be_left_out() {
        assert_eq!(near("blur"), ["image/blur"]);
    }

    #[test]
    fn nothing_like_it_gives_nothing() {
        assert!(near("sort/quicksort").is_empty());
        assert!(near("").is_empty());
        assert_eq!(did_you_mean(&[]), "");
        assert_eq!(did_you_mean(&near("blur")), "; did you mean 'image/blur'?");
    }
}
