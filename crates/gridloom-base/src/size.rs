//! Sizes in bytes, as text with units.

/// Returns a size with its unit, followed by the exact bytes if it is rounded: `128 GiB`, `1.50 MiB (1572865 bytes)`.
pub fn size_text(size_bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|(unit, _)| size_bytes >= *unit) {
        None => format!("{size_bytes} bytes"),
        Some((unit, name)) if size_bytes.is_multiple_of(unit) => format!("{} {name}", size_bytes / unit),
        Some((unit, name)) => format!("{:.2} {name} ({size_bytes} bytes)", size_bytes as f64 / unit as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!([1000, 1 << 20, 128 << 30].map(size_text), ["1000 bytes", "1 MiB", "128 GiB"]);
        assert_eq!(size_text((1 << 30) + 1), "1.00 GiB (1073741825 bytes)");
    }
}
