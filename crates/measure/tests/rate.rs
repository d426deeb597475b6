//! Rates against the tables of RFC 2544 and by hand.

use measure::{Error, Load};

const LINE: Option<u64> = Some(10_000_000_000);

fn pps(text: &str, size: usize, line: Option<u64>) -> Result<f64, Error> {
    Ok(text.parse::<Load>()?.rate(size, line)?.per_second())
}

#[test]
fn ten_gigabits_carry_what_the_tables_say() {
    for (size, frames) in [
        (64, 14_880_952),
        (66, 14_534_884),
        (128, 8_445_946),
        (256, 4_528_986),
        (512, 2_349_624),
        (1024, 1_197_318),
        (1280, 961_538),
        (1518, 812_744),
        (9018, 138_305),
    ] {
        for text in ["100%", "10G:L1"] {
            assert_eq!(pps(text, size - 4, LINE).unwrap().round(), f64::from(frames), "{size}: {text}");
        }
    }
}

#[test]
fn units_and_layers() {
    for (text, expected) in [
        ("1", 1.0),
        ("0.5", 0.5),
        ("1.5k", 1500.0),
        ("2.25M", 2_250_000.0),
        ("50%", 7_440_476.19),
        ("6.72G:L1", 10_000_000.0),
        ("512M:L2", 1_000_000.0),
        ("10kpps", 10_000.0),
        ("512Mbit/s L2", 1_000_000.0),
        ("6.72Gbit/s:L1", 10_000_000.0),
    ] {
        let rate = pps(text, 60, LINE).unwrap();
        assert!((rate / expected - 1.0).abs() < 1e-9, "{text}: {rate}");
    }
}

#[test]
fn wrong_rates_say_what_would_be_right() {
    for text in [
        "",
        "x",
        "-1",
        "1e6",
        "1.5 M",
        "1:",
        "5G:L3",
        "%",
        "k",
        "1kk",
        "5M%",
        "1.",
        ".5",
        "99999999999999999",
        "5G:L1:L2",
        "5Gbit/s",
        "5kpps L1",
        "5pps%",
        "\u{b2}",
    ] {
        assert!(matches!(text.parse::<Load>(), Err(Error::Syntax { .. })), "{text}");
    }
    assert_eq!(pps("0", 60, None), Err(Error::Nothing));
    assert_eq!(pps("0.0000001", 60, None), Err(Error::Nothing));
    assert_eq!(pps("0%", 60, LINE), Err(Error::Nothing));
    assert_eq!(pps("10%", 60, None), Err(Error::NoLine));
    assert!(pps("15M", 60, None).is_ok());
    let error = pps("15M", 60, LINE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "15000000 frames a second are above the line: 10 Gbit/s carry 14880952 frames of 60 bytes (64 with check sequence) \
         a second; ask for less, or for 100%"
    );
    assert!(matches!(pps("100.000001%", 1514, LINE), Err(Error::AboveLine { .. })));
}

#[test]
fn rates_of_any_number_are_a_rate_or_an_error() {
    for load in [Load::Frames(u64::MAX), Load::Layer1(u128::MAX), Load::Layer2(u128::MAX), Load::Percent(u64::MAX)] {
        for line in [None, Some(1), Some(u64::MAX)] {
            for size in [0, 60, usize::MAX] {
                let outcome = load.rate(size, line);
                assert!(outcome.as_ref().is_err() || outcome.as_ref().is_ok_and(|rate| rate.per_second() > 0.0));
                let _ = outcome.map_err(|error| error.to_string());
            }
            for mean in [f64::NAN, f64::INFINITY, -1.0, 353.8] {
                let _ = load.rate_of_mix(mean, line);
            }
        }
    }
}

#[test]
fn a_mix_has_the_rate_of_its_mean_size() {
    // 28 frames of 60 bytes, 16 of 566, 4 of 1514: 350 bytes on average, and 24 more of each on the line.
    let mean = (28.0 * 60.0 + 16.0 * 566.0 + 4.0 * 1514.0) / 48.0;
    let rate = "100%".parse::<Load>().unwrap().rate_of_mix(mean, Some(10_000_000_000)).unwrap();
    assert!((rate.per_second() - 10e9 / 8.0 / (mean + 24.0)).abs() < 0.01);
    let one = "37.5%".parse::<Load>().unwrap();
    let line = Some(25_000_000_000);
    assert_eq!(one.rate_of_mix(1514.0, line).unwrap().per_second(), one.rate(1514, line).unwrap().per_second());
}
