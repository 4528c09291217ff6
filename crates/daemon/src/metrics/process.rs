//! What the process takes of its host, and which build it is.
//!
//! Read from `/proc/self`, so only where there is one. The names are those of
//! the semantic conventions for processes.

use std::fs;

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;
use tokio::time::Instant;

/// Ticks of a second in `/proc/self/stat`: `USER_HZ`, which Linux holds at 100
/// on every architecture that we build for (proc(5), sysconf(3)).
const TICKS_PER_SECOND: f64 = 100.0;

/// `status` counts in these.
const KIB: u64 = 1_024;

/// Measures the process from now on.
pub fn measure(meter: &Meter) {
    let began = Instant::now();
    let build = [KeyValue::new("version", env!("CARGO_PKG_VERSION"))];
    let _kept_by_the_meter = meter
        .u64_observable_gauge("headwater.build.info")
        .with_description("Always 1; the label says which build this is.")
        .with_callback(move |observer| observer.observe(1, &build))
        .build();
    let _kept_by_the_meter = meter
        .f64_observable_gauge("process.uptime")
        .with_unit("s")
        .with_description("Time since the process began.")
        .with_callback(move |observer| observer.observe(began.elapsed().as_secs_f64(), &[]))
        .build();
    let modes = ["user", "system"].map(|it| [KeyValue::new("cpu.mode", it)]);
    let _kept_by_the_meter = meter
        .f64_observable_counter("process.cpu.time")
        .with_unit("s")
        .with_description("CPU time of the process.")
        .with_callback(move |observer| {
            if let Some(times) = read("stat").as_deref().and_then(cpu_seconds) {
                observer.observe(times[0], &modes[0]);
                observer.observe(times[1], &modes[1]);
            }
        })
        .build();
    let _kept_by_the_meter = meter
        .u64_observable_gauge("process.memory.usage")
        .with_unit("By")
        .with_description("Memory of the process in RAM.")
        .with_callback(|observer| {
            if let Some(bytes) = read("status").as_deref().and_then(resident_bytes) {
                observer.observe(bytes, &[]);
            }
        })
        .build();
    let _kept_by_the_meter = meter
        .u64_observable_gauge("process.open_file_descriptor.count")
        .with_unit("{file_descriptor}")
        .with_description("Files and sockets that the process has open.")
        .with_callback(|observer| {
            if let Ok(open) = fs::read_dir("/proc/self/fd") {
                observer.observe(open.count() as u64, &[]);
            }
        })
        .build();
    let _kept_by_the_meter = meter
        .u64_observable_gauge("process.thread.count")
        .with_unit("{thread}")
        .with_description("Threads of the process.")
        .with_callback(|observer| {
            if let Some(threads) = read("status").as_deref().and_then(|it| field(it, "Threads:")) {
                observer.observe(threads, &[]);
            }
        })
        .build();
}

fn read(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/self/{name}")).ok()
}

/// In user mode and in the kernel: the 14th and 15th field. The second one is
/// the program's name in parentheses, and may have spaces in it.
fn cpu_seconds(stat: &str) -> Option<[f64; 2]> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / TICKS_PER_SECOND);
    Some([seconds()?, seconds()?])
}

fn resident_bytes(status: &str) -> Option<u64> {
    Some(field(status, "VmRSS:")? * KIB)
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_moves_no_field() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 250 75 5 6 20 0";
        assert_eq!(cpu_seconds(stat), Some([2.5, 0.75]));
        assert_eq!(cpu_seconds("7 (a"), None);
    }

    #[test]
    fn the_kernels_own_lines_are_read() {
        let status = "Name:\theadwater\nVmRSS:\t    2048 kB\nThreads:\t9\n";
        assert_eq!(resident_bytes(status), Some(2_097_152));
        assert_eq!(field(status, "Threads:"), Some(9));
        assert_eq!(field(status, "VmSwap:"), None);
    }
}
