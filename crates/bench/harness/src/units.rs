//! Numbers with units: this module parses them from the command line, and formats them for people.

use std::time::Duration;

/// Parses a size such as `4G`, `256M`, `64k` or `4096`; the factors are powers of 1024.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or(lower.strip_suffix('b')).unwrap_or(&lower);
    let (digits, shift) = match lower.chars().last() {
        Some('k') => (&lower[..lower.len() - 1], 10),
        Some('m') => (&lower[..lower.len() - 1], 20),
        Some('g') => (&lower[..lower.len() - 1], 30),
        Some('t') => (&lower[..lower.len() - 1], 40),
        _ => (lower, 0),
    };
    let number: u64 =
        digits.parse().map_err(|_| format!("'{text}' is no size; write 4G or 64k"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

/// Parses a duration such as `3s`, `500ms` or `3` (seconds), from 50 ms to one hour.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, unit_s) = match (lower.strip_suffix("ms"), lower.strip_suffix('s')) {
        (Some(digits), _) => (digits, 1e-3),
        (None, Some(digits)) => (digits, 1.0),
        (None, None) => (lower.as_str(), 1.0),
    };
    let number: f64 =
        digits.parse().map_err(|_| format!("'{text}' is no duration; write 3s or 500ms"))?;
    let seconds = number * unit_s;
    if !(0.05..=3600.0).contains(&seconds) {
        return Err(format!("'{text}' is not between 50 ms and one hour"));
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Formats a number with about three significant digits and no exponent.
pub fn digits(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 99.95 => format!("{value:.0}"),
        magnitude if magnitude >= 9.995 => format!("{value:.1}"),
        magnitude if magnitude >= 0.0995 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

pub fn time_us(us: f64) -> String {
    match us {
        us if us >= 999_500.0 => format!("{} s", digits(us / 1e6)),
        us if us >= 999.5 => format!("{} ms", digits(us / 1e3)),
        us if us >= 0.9995 || us == 0.0 => format!("{} µs", digits(us)),
        us => format!("{:.0} ns", us * 1e3),
    }
}

/// Formats a count as 950, 19.8 k or 1.20 M.
pub fn count(value: f64) -> String {
    match value {
        value if value >= 999_500.0 => format!("{} M", digits(value / 1e6)),
        value if value >= 999.5 => format!("{} k", digits(value / 1e3)),
        value => digits(value),
    }
}

pub fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", digits(value), UNITS[unit]).replace(".00 ", " ").replace(".0 ", " ")
}

/// Formats a figure with the unit that a report names, such as `us`, `B/s` or `MB/s`.
pub fn with_unit(unit: &str, value: f64) -> String {
    match unit {
        "us" | "µs" => time_us(value),
        "B/s" => format!("{}/s", bytes(value)),
        "B" => bytes(value),
        "1/s" => count(value),
        "1" | "" => digits(value),
        // A unit of time with words after it, as in `µs CPU`.
        _ if unit.starts_with("µs ") => format!("{} {}", time_us(value), &unit["µs ".len()..]),
        _ => format!("{} {unit}", digits(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4G"), Ok(4 << 30));
        assert_eq!(parse_size("64KiB"), Ok(64 << 10));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert!(parse_size("").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("99999999999T").is_err());
    }

    #[test]
    fn durations_default_to_seconds() {
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        assert_eq!(parse_duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(parse_duration("0").is_err());
        assert!(parse_duration("NaN").is_err());
        assert!(parse_duration("soon").is_err());
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(time_us(0.38), "380 ns");
        assert_eq!(time_us(83.04), "83.0 µs");
        assert_eq!(time_us(4900.0), "4.90 ms");
        assert_eq!(count(19_800.0), "19.8 k");
        assert_eq!(count(999.9), "1.00 k");
        assert_eq!(bytes(f64::from(64 << 10)), "64 KiB");
        assert_eq!(bytes(1.5 * f64::from(1 << 30)), "1.50 GiB");
        assert_eq!(digits(0.0), "0");
        assert_eq!(with_unit("B/s", 2048.0), "2 KiB/s");
        assert_eq!(with_unit("MB/s", 27.891), "27.9 MB/s");
        assert_eq!(with_unit("µs CPU", 24.0), "24.0 µs CPU");
    }
}
