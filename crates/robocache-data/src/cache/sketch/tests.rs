//! The error of ranks over many distributions, orders and ways of merging.

use super::*;

/// What the promise of 0.1 % has to spare.
const BOUND: f64 = 0.0005;

fn random(state: &mut u64) -> f64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let mixed = (*state ^ (*state >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

type Make = fn(usize, usize, &mut u64) -> f64;

const DISTRIBUTIONS: [(&str, Make); 20] = [
    ("uniform", |_, _, state| random(state)),
    ("normal", |_, _, state| normal(state)),
    ("far from 0", |_, _, state| 1e6 + normal(state)),
    ("constant", |_, _, _| 0.25),
    ("zeros of both signs", |at, _, _| if at % 3 == 0 { -0.0 } else { 0.0 }),
    ("two values", |_, _, state| f64::from(random(state) < 0.3)),
    ("sorted", |at, n, _| at as f64 / n as f64),
    ("reversed", |at, n, _| -(at as f64) / n as f64),
    ("sawtooth", |at, _, _| (at % 1000) as f64),
    ("sawtooth of a chunk", |at, _, _| (at % f32::CHUNK) as f64),
    ("zigzag", |at, n, _| if at % 2 == 0 { at as f64 } else { (n - at) as f64 }),
    ("sine", |at, _, _| (at as f64 * 0.001).sin()),
    ("ties", |_, _, state| (random(state) * 20.0).floor()),
    ("rest and noise", |_, _, state| if random(state) < 0.9 { 1e-4 * normal(state) } else { normal(state) }),
    ("exponents", |_, _, state| (60.0 * (random(state) - 0.5)).exp2()),
    ("Cauchy", |_, _, state| (std::f64::consts::PI * (random(state) - 0.5)).tan()),
    ("steps of an encoder", |at, _, state| ((at as f64 * 0.01).sin() * 2048.0 + normal(state)).round() / 2048.0),
    ("bursts", |at, _, state| if at % 997 == 0 { 100.0 * random(state) } else { random(state) }),
    // Nearly as many numbers in a bucket as are not looked at closely.
    ("far ends", |at, _, state| if at % 9999 == 0 { 2.25 - 3.5 * (at % 2) as f64 } else { random(state) }),
    ("outlier", |at, _, state| if at == 0 { 1e30 } else { normal(state) }),
];

fn normal(state: &mut u64) -> f64 {
    let (a, b) = (random(state), random(state));
    (-2.0 * (1.0 - a).ln()).sqrt() * (std::f64::consts::TAU * b).cos()
}

fn made(make: Make, count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    (0..count).map(|at| make(at, count, &mut state)).collect()
}

/// The largest distance between a rank that was asked for and the ranks that the answer has.
fn error<T: Real>(sketch: &Sketch<T>, values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let parts: [f64; 401] = std::array::from_fn(|at| at as f64 / 400.0);
    let answers = sketch.quantiles(parts, sorted[0], sorted[sorted.len() - 1]);
    assert!(answers.is_sorted());
    let errors = parts.iter().zip(answers).map(|(part, answer)| {
        // Interpolation between two equal numbers may round to their neighbour.
        let slack = answer.abs() * 4.0 * f64::EPSILON;
        let below = sorted.partition_point(|&value| value < answer - slack) as f64 / n;
        let up_to = sorted.partition_point(|&value| value <= answer + slack) as f64 / n;
        (below - part).max(part - up_to).max(0.0)
    });
    // A rank between two numbers is not more exact than their distance.
    errors.fold(0.0, f64::max) - 1.0 / n
}

fn sketched<T: Real>(values: &[T]) -> Sketch<T> {
    let mut sketch = Sketch::default();
    // As episodes come: in pieces that fit no chunk.
    values.chunks(777).for_each(|piece| sketch.add(piece));
    sketch
}

fn narrow(values: &[f64]) -> (Vec<f32>, Vec<f64>) {
    let narrow: Vec<f32> = values.iter().map(|&value| value as f32).collect();
    let wide = narrow.iter().map(|&value| f64::from(value)).collect();
    (narrow, wide)
}

#[test]
fn ranks_are_exact_to_half_of_the_promise() {
    for (name, make) in DISTRIBUTIONS {
        // One and two chunks, where little cancels yet, up to many.
        for count in [17_000, 33_000, 70_000, 300_000] {
            let values = made(make, count, 7);
            let wide = error(&sketched(&values), &values);
            let (values, exact) = narrow(&values);
            let narrow = error(&sketched(&values), &exact);
            println!("{name}, {count}: {:.4} % as f32, {:.4} % as f64", 100.0 * narrow, 100.0 * wide);
            assert!(narrow < BOUND && wide < BOUND, "{name}, {count}: {narrow} {wide}");
        }
    }
}

#[test]
fn ranks_of_many_numbers_are_as_exact() {
    for (name, make) in &DISTRIBUTIONS[..2] {
        let (values, exact) = narrow(&made(*make, 3_000_000, 3));
        let sketch = sketched(&values);
        let error = error(&sketch, &exact);
        println!("{name}: {:.4} %", 100.0 * error);
        assert!(error < BOUND, "{name}: {error}");
        assert!(sketch.kept() <= ROOM && sketch.waiting.len() <= f32::CHUNK);
    }
}

#[test]
fn up_to_a_chunk_quantiles_are_exact() {
    for count in [1, 2, 3, 100, f32::CHUNK] {
        let (values, mut exact) = narrow(&made(DISTRIBUTIONS[1].1, count, 5));
        exact.sort_unstable_by(f64::total_cmp);
        let parts = [0.0, 0.01, 0.5, 0.9, 1.0];
        let found = sketched(&values).quantiles(parts, exact[0], exact[count - 1]);
        // As numpy.quantile interpolates.
        for (part, found) in parts.into_iter().zip(found) {
            let place = part * (count - 1) as f64;
            let (low, high) = (exact[place.floor() as usize], exact[place.ceil() as usize]);
            let wanted = low + (high - low) * place.fract();
            assert!((found - wanted).abs() <= 1e-12, "{count} {part}: {found} {wanted}");
        }
    }
}

#[test]
fn a_thousand_parts_merge_without_loss_of_rank() {
    for (name, make) in DISTRIBUTIONS {
        for (parts, count) in [(1000, 300), (20, 20_000)] {
            let (values, exact) = narrow(&made(make, parts * count, 11));
            let (mut all, mut read) = (Sketch::<f32>::default(), Sketch::<f32>::default());
            for part in values.chunks(count) {
                let part = sketched(part);
                all.merge(&part);
                let text = serde_json::to_string(&part).unwrap();
                read.merge(&serde_json::from_str(&text).unwrap());
            }
            assert_eq!((all.count(), read.count()), ((parts * count) as u64, (parts * count) as u64));
            let (all, read) = (error(&all, &exact), error(&read, &exact));
            println!("{name}, {parts} parts: {:.4} %, by files {:.4} %", 100.0 * all, 100.0 * read);
            assert!(all < BOUND && read < BOUND, "{name}, {parts} parts: {all} {read}");
        }
    }
}

#[test]
fn what_is_written_is_small_and_comes_back() {
    for count in [0, 1, 5000, 100_000] {
        let mut sketch = sketched(&made(DISTRIBUTIONS[1].1, count, 1));
        let text = serde_json::to_string(&sketch).unwrap();
        assert!(text.len() < 60_000, "{}", text.len());
        let read: Sketch<f64> = serde_json::from_str(&text).unwrap();
        sketch.settle();
        assert_eq!(read, sketch);
        sketch.settle();
        assert_eq!(read, sketch, "it is settled once");
        assert_eq!(read.count(), count as u64);
        assert!(read.kept() <= SETTLED);
    }
}

#[test]
fn texts_that_are_no_sketch_are_refused() {
    let encode = |bytes: &[u8]| {
        use base64::Engine;
        format!("\"{}\"", base64::engine::general_purpose::STANDARD_NO_PAD.encode(bytes))
    };
    let huge = [&[0][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0; 100]].concat();
    let levels = [&[0][..], &[0; LEVELS + 1]].concat();
    for text in [
        "\"?\"".to_owned(),
        encode(&[]),
        encode(&[0, 1]),
        encode(&[0x80; 20]),
        encode(&huge),
        encode(&levels),
        // A NaN, and more than an f32 has bits.
        encode(&[0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        encode(&[0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]),
    ] {
        assert!(serde_json::from_str::<Sketch<f32>>(&text).is_err(), "{text}");
    }
}

#[test]
fn picks_are_near_their_ranks_and_stand_for_all() {
    for (name, make) in DISTRIBUTIONS {
        for (count, stride) in [(f32::CHUNK, 8), (f32::CHUNK, 128), (4096, 2), (64, 8), (8, 8), (0, 4)] {
            for start in 0..3 {
                let (mut values, mut sorted) = narrow(&made(make, count, 9));
                sorted.sort_unstable_by(f64::total_cmp);
                let span = vector::bounds(&values);
                let picks = picked(&mut values, span, stride, start * stride + start);
                assert_eq!(picks.len(), count / stride, "{name}");
                assert!(picks.is_sorted(), "{name}");
                // The most that a bucket of numbers that are not told apart can hold.
                let room = (count / 1365).max(1);
                for (group, pick) in picks.into_iter().map(|key| f64::from(f32::from_key(key))).enumerate() {
                    let wanted = group * stride + start % stride;
                    let below = sorted.partition_point(|&value| value < pick);
                    let up_to = sorted.partition_point(|&value| value <= pick);
                    assert!(below < up_to, "{name}: {pick} was not among them");
                    assert!(
                        below <= wanted + room && wanted < up_to + room,
                        "{name}, {count}: {wanted} {below} {up_to}"
                    );
                }
            }
        }
    }
}

#[test]
fn numbers_at_the_ends_of_the_type_are_sorted_too() {
    let extremes = [f64::MAX, f64::MIN, 0.0, f64::MIN_POSITIVE, 5e-324, -5e-324, 1.0];
    let values: Vec<f64> = extremes.iter().copied().cycle().take(20_000).collect();
    assert!(error(&sketched(&values), &values) < BOUND);
    let tiny: Vec<f64> = (0..20_000).map(|at| f64::from(at) * 5e-324).collect();
    assert!(error(&sketched(&tiny), &tiny) < BOUND);
}

#[test]
fn merging_runs_of_any_length_sorts() {
    for (a, b) in [(0, 0), (0, 5), (1, 1), (3, 1000), (1000, 3), (257, 256)] {
        let mut state = 1;
        let mut run = |count: usize| {
            let mut run: Vec<u32> = (0..count).map(|_| (random(&mut state) * 300.0) as u32).collect();
            run.sort_unstable();
            run
        };
        let (a, b) = (run(a), run(b));
        let mut wanted = [&a[..], &b[..]].concat();
        wanted.sort_unstable();
        assert_eq!(merged(&a, &b), wanted);
    }
}
