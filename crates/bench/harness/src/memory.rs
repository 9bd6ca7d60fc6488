//! The memory of this process, and the page cache of the machine.

use std::fs;

/// Returns zero if `/proc/meminfo` has no such field.
pub fn field_bytes(name: &str) -> u64 {
    bytes_of(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), name)
}

pub fn page_cache_bytes() -> f64 {
    field_bytes("Cached") as f64
}

/// Resets the peak resident size of this process, if the kernel permits that.
pub fn forget_peak() {
    // 5 sets the peak to the current size. Source: proc_pid_clear_refs(5).
    let _ = fs::write("/proc/self/clear_refs", "5");
}

pub fn peak_bytes() -> f64 {
    bytes_of(&fs::read_to_string("/proc/self/status").unwrap_or_default(), "VmHWM") as f64
}

fn bytes_of(text: &str, name: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "SwapCached:  4 kB\nCached:   12 kB\nDirty: 1 kB\n";
        assert_eq!(bytes_of(text, "Cached"), 12 << 10);
        assert_eq!(bytes_of(text, "Swap"), 0);
    }

    #[test]
    fn this_process_has_a_size() {
        forget_peak();
        assert!(peak_bytes() > 0.0 && page_cache_bytes() > 0.0);
    }
}
