//! What the kernel knows about this process, under the names that Prometheus' client libraries use. Linux only; elsewhere
//! there are no such metrics.

use std::fs;

/// Clock ticks per second in `/proc`: always 100 for programs, whatever the kernel uses.
const TICKS: f64 = 100.0;

/// The numbers of this process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Process {
    pub(super) cpu_seconds: f64,
    pub(super) start_time: f64,
    pub(super) virtual_bytes: f64,
    pub(super) resident_bytes: f64,
    pub(super) open_files: f64,
    pub(super) max_files: f64,
}

impl Process {
    /// Reads `/proc/self`; `None` if there is no such thing.
    pub(super) fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let statm = fs::read_to_string("/proc/self/statm").ok()?;
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        let open = u32::try_from(fs::read_dir("/proc/self/fd").ok()?.count()).ok()?;
        parse(&stat, &boot, &statm, &limits, f64::from(open))
    }
}

fn parse(stat: &str, boot: &str, statm: &str, limits: &str, open_files: f64) -> Option<Process> {
    // The program's name, in brackets, may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field)?.parse::<f64>().ok();
    let boot_time: f64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let pages = |field: usize| statm.split_whitespace().nth(field)?.parse::<f64>().ok();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
    Some(Process {
        cpu_seconds: (number(11)? + number(12)?) / TICKS,
        start_time: boot_time + number(19)? / TICKS,
        virtual_bytes: number(20)?,
        resident_bytes: pages(1)? * page_size(number(20)?, pages(0)?),
        open_files,
        max_files: files.parse().unwrap_or(f64::INFINITY),
    })
}

/// The size of a page: the same memory in bytes and in pages.
fn page_size(bytes: f64, pages: f64) -> f64 {
    if pages > 0.0 { (bytes / pages).round() } else { 4096.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read_by_its_columns() {
        let stat = "4242 (fire) steel) S 1 4242 4242 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 8 0 1000 8192000 500 18446744073709551615";
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        let read = parse(stat, "cpu 1\nbtime 1700000000\n", "2000 500 10 1 0 1 0", limits, 12.0).unwrap();
        assert_eq!(
            read,
            Process {
                cpu_seconds: 2.0,
                start_time: 1_700_000_010.0,
                virtual_bytes: 8_192_000.0,
                resident_bytes: 2_048_000.0,
                open_files: 12.0,
                max_files: 1024.0,
            }
        );
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_has_numbers() {
        let read = Process::read().unwrap();
        assert!(read.resident_bytes > 1e6 && read.open_files >= 3.0 && read.start_time > 1.6e9, "{read:?}");
    }
}
