//! Cycles per packet: receive, transmit, pool and whole forward, over burst and ring sizes.
//!
//! The unit is the time-stamp counter's cycle. The hardware's part is measured in the same sample and subtracted:
//! what is below zero is noise, and is shown as it is.

use benches::{Rig, Work};
use criterion::measurement::{Measurement, ValueFormatter};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use device::tsc;
use std::hint::black_box;

/// Measures in cycles of the time-stamp counter.
struct Cycles;

impl Measurement for Cycles {
    type Intermediate = u64;
    /// A difference, and below zero where noise is larger than what is measured.
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
        *value as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        self
    }
}

fn nanoseconds(cycles: f64) -> f64 {
    cycles * 1e9 / tsc::frequency_hz() as f64
}

impl ValueFormatter for Cycles {
    fn format_value(&self, value: f64) -> String {
        format!("{value:.1} cycles ({:.1} ns)", nanoseconds(value))
    }

    fn format_throughput(&self, throughput: &Throughput, value: f64) -> String {
        let Throughput::Elements(packets) = throughput else { return self.format_value(value) };
        let value = value / *packets as f64;
        format!("{value:.2} cycles/packet ({:.2} ns)", nanoseconds(value))
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

fn measure(criterion: &mut Criterion<Cycles>, group: &str, work: Work, burst: usize, ring: u16, parameter: usize) {
    let mut group = criterion.benchmark_group(group);
    group.throughput(Throughput::Elements(burst as u64));
    let (mut rig, mut hardware) = (Rig::new(burst, ring), Rig::new(burst, ring));
    group.bench_function(BenchmarkId::new(work.to_string(), parameter), |bencher| {
        bencher.iter_custom(|bursts| {
            let start = tsc::now();
            for _ in 0..bursts {
                black_box(rig.burst(work));
            }
            let middle = tsc::now();
            for _ in 0..bursts {
                hardware.hardware_burst(work);
            }
            let end = tsc::now();
            (middle - start).cast_signed() - (end - middle).cast_signed()
        });
    });
}

fn bursts(criterion: &mut Criterion<Cycles>) {
    for work in Work::ALL {
        for burst in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
            measure(criterion, "burst", work, burst, 512, burst);
        }
    }
}

fn rings(criterion: &mut Criterion<Cycles>) {
    for work in [Work::Receive, Work::Transmit, Work::Forward] {
        for ring in [64, 128, 256, 512, 1024, 2048, 4096] {
            measure(criterion, "ring", work, 32, ring, ring.into());
        }
    }
}

criterion_group! {
    name = packet;
    config = Criterion::default()
        .with_measurement(Cycles)
        .sample_size(20)
        .warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(500))
        .without_plots();
    targets = bursts, rings
}
criterion_main!(packet);
