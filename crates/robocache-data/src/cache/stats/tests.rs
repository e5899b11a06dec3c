//! Statistics against plain arithmetic, for every type, and what must not disturb them.

use half::{bf16, f16};
use robocache::tensor::{F8E4M3, F8E5M2};

use super::*;

fn close(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= 1e-9 * wanted.abs().max(1.0)
}

fn stats_of<T: robocache::Element>(rows: &[T], width: usize) -> StreamStats {
    let mut stats = StreamStats::new(width);
    stats.add(&Tensor::from_slice(rows, &[rows.len() / width, width]).unwrap()).unwrap();
    stats
}

#[test]
fn components_have_their_own_statistics() {
    let rows: Vec<f64> = (0..3000).flat_map(|at| [f64::from(at), 1e9 + f64::from(at % 2), -2.0]).collect();
    let mut stats = StreamStats::new(3);
    // In episodes of several lengths.
    for (start, end) in [(0, 1), (1, 1200), (1200, 1200), (1200, 3000)] {
        let rows = &rows[3 * start..3 * end];
        stats.add(&Tensor::from_slice(rows, &[end - start, 3, 1]).unwrap()).unwrap();
    }
    let summary = stats.summary();
    assert_eq!(summary.count, 3000);
    assert_eq!(summary.min, [0.0, 1e9, -2.0]);
    assert_eq!(summary.max, [2999.0, 1e9 + 1.0, -2.0]);
    assert!(close(summary.mean[0], 1499.5) && close(summary.mean[1], 1e9 + 0.5));
    assert!(close(summary.std[0], ((3000f64.powi(2) - 1.0) / 12.0).sqrt()), "{:?}", summary.std);
    assert!(close(summary.std[1], 0.5), "{:?}", summary.std);
    assert_eq!((summary.mean[2], summary.std[2]), (-2.0, 0.0));
    assert!(close(summary.q01[0], 29.99) && close(summary.q50[0], 1499.5) && close(summary.q99[0], 2969.01));
    assert_eq!((summary.q10[1], summary.q90[1]), (1e9, 1e9 + 1.0));
}

#[test]
fn every_type_is_read() {
    macro_rules! check {
        ($($convert:expr),+) => {
            $({
                let rows: Vec<_> = [0u8, 1, 1, 0, 1, 1].into_iter().map($convert).collect();
                let summary = stats_of(&rows, 2).summary();
                assert_eq!((summary.min, summary.max, summary.count), (vec![0.0; 2], vec![1.0; 2], 3));
                assert!(summary.mean.iter().all(|&mean| close(mean, 2.0 / 3.0)));
            })+
        };
    }
    check!(f32::from, f64::from, u8::from, u16::from, u32::from, u64::from, i16::from, i32::from, i64::from);
    check!(|x| x == 1, |x| x as i8, |x| f16::from_f32(f32::from(x)), |x| bf16::from_f32(f32::from(x)));
    check!(|x| F8E4M3(if x == 1 { 0x38 } else { 0 }), |x| F8E5M2(if x == 1 { 0x3c } else { 0 }));
    assert_eq!(DType::ALL.len(), 15, "a type is missing above");
}

#[test]
fn nan_and_infinities_are_counted_and_take_no_part() {
    let mut rows = vec![1.0f32, 5.0, 3.0, f32::NAN, f32::INFINITY, 7.0, f32::NEG_INFINITY, f32::NAN, 2.0, 6.0];
    let summary = stats_of(&rows, 2).summary();
    assert_eq!((summary.nan, summary.infinite), (vec![0, 2], vec![2, 0]));
    assert_eq!((summary.count, summary.min, summary.max), (5, vec![1.0, 5.0], vec![3.0, 7.0]));
    assert_eq!((summary.mean, summary.q50), (vec![2.0, 6.0], vec![2.0, 6.0]));
    rows.fill(f32::NAN);
    let stats = stats_of(&rows, 2);
    let summary = stats.summary();
    assert!([&summary.mean, &summary.std, &summary.min, &summary.q50].iter().all(|values| values[0].is_nan()));
    // Also through JSON, which has no NaN.
    let read: Summary = serde_json::from_str(&serde_json::to_string(&summary).unwrap()).unwrap();
    assert!(read.mean[1].is_nan() && read.nan == [5, 5]);
    let read: StreamStats = serde_json::from_str(&serde_json::to_string(&stats).unwrap()).unwrap();
    assert_eq!(read, stats);
}

#[test]
fn large_numbers_stay_finite() {
    let summary = stats_of(&[f64::MAX, f64::MIN, f64::MAX, f64::MIN], 1).summary();
    assert!(summary.mean[0].abs() < 1e300 && summary.std[0].is_finite(), "{summary:?}");
    let mut stats = stats_of(&[f64::MAX, f64::MAX], 1);
    stats.merge(&stats_of(&[f64::MIN, f64::MIN], 1)).unwrap();
    let summary = stats.summary();
    assert!(summary.mean[0].abs() < 1e300 && summary.std[0].is_finite(), "{summary:?}");
    let text = serde_json::to_string(&stats).unwrap();
    assert_eq!(serde_json::from_str::<StreamStats>(&text).unwrap().summary(), summary);
}

#[test]
fn merged_is_as_added_at_once() {
    let rows: Vec<f32> = (0..60_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6 + 50.0).collect();
    let all = stats_of(&rows, 2).summary();
    let mut merged = StreamStats::new(2);
    for part in rows.chunks(1000) {
        merged.merge(&stats_of(part, 2)).unwrap();
    }
    let again = merged.summary();
    assert_eq!((&all.min, &all.max, all.count), (&again.min, &again.max, again.count));
    for at in 0..2 {
        assert!(close(all.mean[at], again.mean[at]) && close(all.std[at], again.std[at]));
        assert!((all.q50[at] - again.q50[at]).abs() < 0.001 * (all.max[at] - all.min[at]));
    }
    // The same order gives the same bits.
    let mut twin = StreamStats::new(2);
    rows.chunks(1000).for_each(|part| twin.merge(&stats_of(part, 2)).unwrap());
    assert_eq!(merged, twin);
}

#[test]
fn types_of_different_width_go_together() {
    let mut stats = stats_of(&[1.0f32, 2.0], 1);
    stats.add(&Tensor::from_slice(&[(1i64 << 40) + 1], &[1, 1]).unwrap()).unwrap();
    stats.add(&Tensor::from_slice(&[3.0f32], &[1, 1]).unwrap()).unwrap();
    stats.merge(&stats_of(&[true], 1)).unwrap();
    let mut narrow = stats_of(&[0u8], 1);
    narrow.merge(&stats).unwrap();
    let summary = narrow.summary();
    assert_eq!((summary.count, summary.min[0], summary.max[0]), (6, 0.0, ((1u64 << 40) + 1) as f64));
    assert_eq!(summary.q50[0], 1.5);
}

#[test]
fn pictures_are_counted_per_channel() {
    let mut stats = StreamStats::new(3);
    let picture = |value: u8| [value, 255, 2 * value].repeat(480 * 640);
    stats.add_picture(&picture(0), 3).unwrap();
    stats.add_picture(&picture(100), 3).unwrap();
    let mut other = StreamStats::new(3);
    other.merge(&stats).unwrap();
    other.merge(&StreamStats::new(3)).unwrap();
    let read: StreamStats = serde_json::from_str(&serde_json::to_string(&other).unwrap()).unwrap();
    assert_eq!(read, stats);
    let summary = read.summary();
    assert_eq!(summary.count, 2);
    assert_eq!(summary.min, [0.0, 1.0, 0.0]);
    assert_eq!(summary.max, [100.0 / 255.0, 1.0, 200.0 / 255.0]);
    assert!(close(summary.mean[0], 50.0 / 255.0) && close(summary.std[2], 100.0 / 255.0) && summary.std[1] < 1e-9);
    assert_eq!((summary.q01[0], summary.q99[0]), (0.0, 100.0 / 255.0));
}

#[test]
fn a_picture_contributes_pixels_from_all_over() {
    for (height, width) in [(64usize, 64usize), (256, 256), (480, 640), (1080, 1920), (1, 1)] {
        let mut stats = StreamStats::new(1);
        // Brighter to the right: a step that meets few columns would be found out.
        let pixels: Vec<u8> = (0..height * width).map(|at| ((at % width) * 256 / width) as u8).collect();
        stats.add_picture(&pixels, 1).unwrap();
        let Values::Pictures(counts) = &stats.values else { panic!("pictures") };
        assert!(counts.iter().sum::<u64>() <= PIXELS as u64);
        let summary = stats.summary();
        let wanted = pixels.iter().map(|&pixel| f64::from(pixel)).sum::<f64>() / pixels.len() as f64 / 255.0;
        assert!((summary.mean[0] - wanted).abs() < 0.01, "{height} x {width}: {} {wanted}", summary.mean[0]);
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut stats = StreamStats::new(2);
    assert!(stats.add(&Tensor::from_slice(&[1.0f32; 3], &[1, 3]).unwrap()).is_err());
    assert!(stats.add(&Tensor::from_slice(&[1.0f32], &[]).unwrap()).is_err());
    assert!(stats.add_picture(&[0; 9], 3).is_err());
    assert!(stats.merge(&StreamStats::new(3)).is_err());
    let mut pictures = stats.clone();
    pictures.add_picture(&[0; 8], 2).unwrap();
    stats.add(&Tensor::from_slice(&[1.0f32; 4], &[2, 2]).unwrap()).unwrap();
    assert!(stats.merge(&pictures).is_err() && pictures.merge(&stats).is_err());
    assert!(stats.add_picture(&[0; 8], 2).is_err());
    assert!(pictures.add(&Tensor::from_slice(&[1.0f32; 2], &[1, 2]).unwrap()).is_err());
    assert_eq!((stats.summary().count, pictures.summary().count), (2, 1));
}

#[test]
fn files_that_contradict_themselves_are_refused() {
    let good = serde_json::to_string(&stats_of(&[1.0f32, 2.0], 2)).unwrap();
    assert!(serde_json::from_str::<StreamStats>(&good).is_ok());
    for (from, to) in [("\"width\":2", "\"width\":3"), ("\"count\":1", "\"count\":2"), ("\"narrow\"", "\"pictures\"")] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good);
        assert!(serde_json::from_str::<StreamStats>(&bad).is_err(), "{bad}");
    }
    let pictures = r#"{"width":18446744073709551615,"samples":1,"values":{"pictures":[1]}}"#;
    assert!(serde_json::from_str::<StreamStats>(pictures).is_err());
}

/// `cargo test --release -p robocache-data stats_speed -- --ignored --nocapture`: values per second
/// of one thread, in episodes of 1000 samples. The best of many rounds, since machines are shared.
#[test]
#[ignore = "a measurement"]
fn stats_speed() {
    const ROWS: usize = 1000;
    let noise = |at: usize| (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) >> 11;
    let uniform = |at: usize| noise(at) as f64 / (1u64 << 53) as f64;
    let bell = |at: usize| (0..12).map(|part| uniform(12 * at + part)).sum::<f64>() - 6.0;
    let resting = |at: usize| if at % 10 < 7 { 1e-3 * bell(at) } else { 5.0 * bell(at) };
    let makes: [(&str, &dyn Fn(usize) -> f64); 6] = [
        ("uniform", &uniform),
        ("bell", &bell),
        ("resting with noise", &resting),
        ("sine", &|at| (at as f64 * 0.0003).sin()),
        ("binary", &|at| (noise(at) & 1) as f64),
        ("constant", &|_| 0.5),
    ];
    for (name, make) in makes {
        for (width, episodes) in [(7, 100), (14, 100), (14, 1000), (64, 100)] {
            let rows: Vec<Vec<f64>> =
                (0..20).map(|e| (0..ROWS * width).map(|at| make(at + e * 999_983)).collect()).collect();
            let tensor = |rows: &Vec<f64>| Tensor::from_slice(rows, &[ROWS, width]).unwrap();
            let narrow = |rows: &Vec<f64>| {
                let rows: Vec<f32> = rows.iter().map(|&value| value as f32).collect();
                Tensor::from_slice(&rows, &[ROWS, width]).unwrap()
            };
            let rate = |tensors: Vec<Tensor>| {
                let seconds = (0..10).map(|_| {
                    let mut stats = StreamStats::new(width);
                    let start = std::time::Instant::now();
                    tensors.iter().cycle().take(episodes).for_each(|tensor| stats.add(tensor).unwrap());
                    start.elapsed().as_secs_f64()
                });
                (episodes * ROWS * width) as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e6
            };
            let (narrow, wide) = (rate(rows.iter().map(narrow).collect()), rate(rows.iter().map(tensor).collect()));
            println!("{name}, {width} wide, {episodes} k samples: {narrow:.0} M f32/s, {wide:.0} M f64/s");
        }
    }
}
