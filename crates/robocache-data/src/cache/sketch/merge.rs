//! Merging sorted runs.

/// The keys of two sorted runs, sorted.
///
/// A step of a merge waits for the comparison before it, while the processor could do more: the
/// lower and the upper half are merged at the same time.
pub(super) fn merged<K: Copy + Ord + Default>(a: &[K], b: &[K]) -> Vec<K> {
    let mut out = vec![K::default(); a.len() + b.len()];
    let (a_mid, b_mid) = middle(a, b);
    let (mut i, mut j, mut k) = (0, 0, 0);
    let (mut x, mut y, mut z) = (a_mid, b_mid, a_mid + b_mid);
    loop {
        // So many steps cannot come to the end of a half.
        let steps = (a_mid - i).min(b_mid - j).min(a.len() - x).min(b.len() - y);
        if steps == 0 {
            break;
        }
        for _ in 0..steps {
            let first = a[i] <= b[j];
            out[k] = if first { a[i] } else { b[j] };
            i += usize::from(first);
            j += usize::from(!first);
            k += 1;
            let first = a[x] <= b[y];
            out[z] = if first { a[x] } else { b[y] };
            x += usize::from(first);
            y += usize::from(!first);
            z += 1;
        }
    }
    let (low, high) = out.split_at_mut(a_mid + b_mid);
    merge_rest(&a[i..a_mid], &b[j..b_mid], &mut low[k..]);
    merge_rest(&a[x..], &b[y..], &mut high[z - a_mid - b_mid..]);
    out
}

fn merge_rest<K: Copy + Ord>(a: &[K], b: &[K], out: &mut [K]) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let first = a[i] <= b[j];
        out[i + j] = if first { a[i] } else { b[j] };
        i += usize::from(first);
        j += usize::from(!first);
    }
    let (from_a, from_b) = out[i + j..].split_at_mut(a.len() - i);
    from_a.copy_from_slice(&a[i..]);
    from_b.copy_from_slice(&b[j..]);
}

/// How many keys of each run are in the lower half of both together.
fn middle<K: Ord>(a: &[K], b: &[K]) -> (usize, usize) {
    let half = (a.len() + b.len()) / 2;
    let (mut low, mut high) = (half.saturating_sub(b.len()), half.min(a.len()));
    while low < high {
        let i = low.midpoint(high);
        // Where a[i] is not above the last that b would give, it belongs to the lower half.
        if a[i] <= b[half - i - 1] { low = i + 1 } else { high = i }
    }
    (low, half - low)
}
