//! The sort and the scan on a GPU, where there is one.

use super::{DeviceBuffer, Gpu, Launcher, Scan, Sort, SortMemory, gpu, probe};
use crate::DType;

const COUNTS: [usize; 15] = [0, 1, 15, 16, 17, 127, 128, 129, 4095, 4096, 4097, 20_000, 200_001, 300_003, 600_001];

fn some_gpu() -> Option<&'static Gpu> {
    match probe().and_then(|_| gpu(0, 0)) {
        Ok(gpu) => Some(gpu),
        Err(error) => {
            println!("skipped: no GPU: {error}");
            None
        }
    }
}

fn random(count: usize, most: u64) -> Vec<u64> {
    let mut state = most ^ count as u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 1) % (most + 1)
    };
    (0..count).map(|_| next()).collect()
}

fn address(buffer: &mut DeviceBuffer, bytes: usize) -> *mut u8 {
    buffer.view_mut(&[bytes], DType::U8).unwrap().data_mut()
}

#[test]
fn keys_are_sorted_and_equal_ones_keep_their_order() {
    let Some(gpu) = some_gpu() else { return };
    let launcher = Launcher::new(gpu, 0, false);
    for most in [0, 255, 256, 70_000, u64::from(u32::MAX), 1 << 40, (1 << 63) - 1] {
        for count in COUNTS {
            let keys = random(count, most);
            let sort = Sort::new(count, most).unwrap();
            let size = sort.key_bytes();
            let mut first = if sort.wide {
                DeviceBuffer::from_slice(gpu, &keys).unwrap()
            } else {
                DeviceBuffer::from_slice(gpu, &keys.iter().map(|&key| key as u32).collect::<Vec<_>>()).unwrap()
            };
            let mut second = DeviceBuffer::new(gpu, count * size).unwrap();
            let mut values = [(); 2].map(|()| DeviceBuffer::new(gpu, count * 4).unwrap());
            // What the kernels that make keys leave: the digits counted, all else 0.
            let mut words = vec![0u32; sort.state_bytes() / 4];
            for pass in 0..most.to_le_bytes().into_iter().rposition(|byte| byte > 0).map_or(1, |last| last + 1) {
                keys.iter().for_each(|key| words[256 * pass + usize::from(key.to_le_bytes()[pass])] += 1);
            }
            let mut state = DeviceBuffer::from_slice(gpu, &words).unwrap();
            let [low, high] = &mut values;
            let memory = SortMemory {
                keys: [address(&mut first, count * size), address(&mut second, count * size)],
                values: [address(low, count * 4).cast(), address(high, count * 4).cast()],
                state: address(&mut state, sort.state_bytes()).cast(),
            };
            // SAFETY: the buffers are as long as asked for, and copies wait for the launches.
            let at = unsafe { sort.run(&launcher, &memory).unwrap() };
            let mut want: Vec<_> = (0u32..).zip(&keys).map(|(place, &key)| (key, place)).collect();
            want.sort_by_key(|pair| pair.0);
            let sorted = if at == 0 { &first } else { &second };
            let got: Vec<u64> = if sort.wide {
                sorted.to_vec::<u64>().unwrap()
            } else {
                sorted.to_vec::<u32>().unwrap().into_iter().map(u64::from).collect()
            };
            assert_eq!(got, want.iter().map(|pair| pair.0).collect::<Vec<_>>(), "{count} keys up to {most}");
            let places = values[at].to_vec::<u32>().unwrap();
            assert_eq!(places, want.iter().map(|pair| pair.1).collect::<Vec<_>>(), "{count} keys up to {most}");
        }
    }
}

#[test]
fn sums_of_all_numbers_before_each() {
    let Some(gpu) = some_gpu() else { return };
    let launcher = Launcher::new(gpu, 0, false);
    for count in COUNTS.into_iter().filter(|&count| count > 0) {
        let numbers: Vec<u32> = random(count, 9).into_iter().map(|number| number as u32).collect();
        let scan = Scan { count };
        let mut padded = numbers.clone();
        padded.resize(scan.number_bytes() / 4, 77);
        let mut buffer = DeviceBuffer::from_slice(gpu, &padded).unwrap();
        let mut state = DeviceBuffer::new(gpu, scan.state_bytes()).unwrap();
        let mut total = DeviceBuffer::new(gpu, 4).unwrap();
        // SAFETY: the buffers are as long as asked for, and copies wait for the launches.
        unsafe {
            let (numbers, total) = (address(&mut buffer, scan.number_bytes()), address(&mut total, 4));
            scan.run(&launcher, numbers.cast(), total.cast(), address(&mut state, scan.state_bytes())).unwrap();
        }
        let mut sum = 0;
        let mut before = |number: &u32| {
            sum += number;
            sum - number
        };
        let want: Vec<u32> = numbers.iter().map(&mut before).collect();
        assert_eq!(buffer.to_vec::<u32>().unwrap()[..count], want, "{count}");
        assert_eq!(total.to_vec::<u32>().unwrap(), [sum], "{count}");
    }
}
