//! Cycles per forwarded packet as one line, for comparison with another driver in the same run: `forward_cycles BURST
//! [RING]` prints `forward burst=BURST ring=RING cycles_per_packet=NN.NN with_hardware=NN.NN`, in cycles of the
//! time-stamp counter: the driver's part, and what was measured before the hardware's part was subtracted.
//!
//! Both are medians of many short samples, each with the hardware's part measured beside it; `benches/rival` measures
//! DPDK in the same way and with the same numbers.

use benches::{Rig, Work};
use device::tsc;
use std::process::ExitCode;

const RING: u16 = 512;
const SAMPLES: usize = 101;
const SAMPLE_PACKETS: usize = 12_800;
const WARM_UP_PACKETS: usize = 102_400;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match measure(&arguments) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("forward_cycles: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &[String]) -> Result<String, String> {
    let (burst, ring) = match arguments {
        [burst] => (number(burst)?, RING),
        [burst, ring] => (number(burst)?, number(ring)?),
        _ => return Err("usage: forward_cycles BURST [RING]".into()),
    };
    let burst = usize::from(burst);
    if burst == 0 || burst > usize::from(ring) {
        return Err(format!("a burst of {burst} packets in a ring of {ring}; give a burst of 1 to {ring}"));
    }
    let (mut rig, mut hardware) = (Rig::new(burst, ring), Rig::new(burst, ring));
    let bursts = SAMPLE_PACKETS.div_ceil(burst);
    whole(&mut rig, burst, WARM_UP_PACKETS.div_ceil(burst))?;
    let (mut samples, mut unsubtracted) = (Vec::with_capacity(SAMPLES), Vec::with_capacity(SAMPLES));
    for _ in 0..SAMPLES {
        let start = tsc::now();
        whole(&mut rig, burst, bursts)?;
        let middle = tsc::now();
        hardware_alone(&mut hardware, burst, bursts);
        let end = tsc::now();
        let (whole, alone) = ((middle - start) as f64, (end - middle) as f64);
        samples.push((whole - alone) / (bursts * burst) as f64);
        unsubtracted.push(whole / (bursts * burst) as f64);
    }
    let (driver, all) = (median(samples), median(unsubtracted));
    Ok(format!("forward burst={burst} ring={ring} cycles_per_packet={driver:.2} with_hardware={all:.2}"))
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

#[inline(never)]
fn whole(rig: &mut Rig, burst: usize, bursts: usize) -> Result<(), String> {
    let mut sent = 0;
    for _ in 0..bursts {
        sent += rig.burst(Work::Forward);
    }
    if sent == bursts * burst { Ok(()) } else { Err(format!("{sent} packets transmitted of {}", bursts * burst)) }
}

#[inline(never)]
fn hardware_alone(rig: &mut Rig, burst: usize, bursts: usize) {
    for _ in 0..bursts {
        rig.hardware_part(Work::Forward, burst);
    }
}

fn number(text: &str) -> Result<u16, String> {
    text.parse().map_err(|error| format!("{text}: {error}; give a number of packets"))
}
