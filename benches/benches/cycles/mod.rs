//! Criterion in cycles per packet, by the time-stamp counter. What is measured is a difference, and so below zero where noise is
//! larger than it: that is printed as it is, with a word.

use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{BenchmarkId, Criterion, Throughput};
use device::tsc;
use std::hint::black_box;
use std::time::Duration;

/// Measures in cycles of the time-stamp counter.
pub(crate) struct Cycles;

/// What all benches are measured with.
pub(crate) fn criterion() -> Criterion<Cycles> {
    let (warm_up, measurement) = (Duration::from_millis(200), Duration::from_millis(500));
    let criterion = Criterion::default().with_measurement(Cycles).sample_size(20).without_plots();
    criterion.warm_up_time(warm_up).measurement_time(measurement)
}

/// Measures what a packet costs in a burst of `burst` that `whole` handles, less what it costs in one that `part` handles.
pub(crate) fn measure<R, T>(
    criterion: &mut Criterion<Cycles>,
    (group, name, parameter): (&str, &str, usize),
    burst: usize,
    mut rig: R,
    whole: impl Fn(&mut R) -> T,
    part: impl Fn(&mut R) -> T,
) {
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(burst as u64));
    group.bench_function(BenchmarkId::new(name, parameter), |bencher| {
        bencher.iter_custom(|bursts| {
            let each = bursts.clamp(1, CHUNK);
            let mut chunks: Vec<i64> = (0..(bursts / each).max(1))
                .map(|_| cycles(each, || whole(&mut rig)) - cycles(each, || part(&mut rig)))
                .collect();
            let middle = chunks.len() / 2;
            let (_, median, _) = chunks.select_nth_unstable(middle);
            *median * bursts.cast_signed() / each.cast_signed()
        });
    });
}

/// Bursts that are measured at a time, `whole` and `part` in turn. A sample is the median of all, so that who is put aside by the
/// kernel for a moment does not count.
const CHUNK: u64 = 256;

#[inline(always)]
fn cycles<T>(bursts: u64, mut burst: impl FnMut() -> T) -> i64 {
    let start = tsc::now();
    for _ in 0..bursts {
        black_box(burst());
    }
    (tsc::now() - start).cast_signed()
}

impl Measurement for Cycles {
    type Intermediate = u64;
    type Value = i64;

    fn start(&self) -> u64 {
        tsc::now()
    }

    fn end(&self, start: u64) -> i64 {
        (tsc::now() - start).cast_signed()
    }

    fn add(&self, first: &i64, second: &i64) -> i64 {
        first + second
    }

    fn zero(&self) -> i64 {
        0
    }

    fn to_f64(&self, value: &i64) -> f64 {
        // Criterion drops a bench of which a sample is exactly 0.
        if *value == 0 { 1e-3 } else { *value as f64 }
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self
    }
}

fn words(cycles: f64, unit: &str) -> String {
    let nanoseconds = cycles * 1e9 / tsc::frequency_hz() as f64;
    let noise = if cycles < 0.0 { ": below noise" } else { "" };
    format!("{cycles:.2} {unit} ({nanoseconds:.2} ns){noise}")
}

impl ValueFormatter for Cycles {
    fn format_value(&self, value: f64) -> String {
        words(value, "cycles")
    }

    fn format_throughput(&self, throughput: &Throughput, value: f64) -> String {
        let Throughput::Elements(packets) = throughput else { return self.format_value(value) };
        words(value / *packets as f64, "cycles/packet")
    }

    fn scale_values(&self, _: f64, _: &mut [f64]) -> &'static str {
        "cycles"
    }

    fn scale_throughputs(&self, _: f64, throughput: &Throughput, values: &mut [f64]) -> &'static str {
        if let Throughput::Elements(packets) = throughput {
            values.iter_mut().for_each(|value| *value /= *packets as f64);
        }
        "cycles/packet"
    }

    fn scale_for_machines(&self, _: &mut [f64]) -> &'static str {
        "cycles"
    }
}
