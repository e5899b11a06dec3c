//! Merging sorted runs.

/// A step of a merge waits for the comparison before it, while the processor could do more: so
/// many parts of the result are made at the same time.
const WAYS: usize = 4;

/// The keys of two sorted runs, sorted.
pub(super) fn merged<K: Copy + Ord + Default>(a: &[K], b: &[K]) -> Vec<K> {
    let total = a.len() + b.len();
    let mut out = vec![K::default(); total];
    if a.is_empty() || b.is_empty() {
        merge(a, b, &mut out);
        return out;
    }
    let ends: [(usize, usize); WAYS] = std::array::from_fn(|way| split(a, b, total * (way + 1) / WAYS));
    let mut at: [(usize, usize); WAYS] = std::array::from_fn(|way| if way == 0 { (0, 0) } else { ends[way - 1] });
    loop {
        // So many steps cannot come to the end of a part.
        let left = at.iter().zip(&ends).map(|(at, end)| (end.0 - at.0).min(end.1 - at.1));
        let steps = left.min().unwrap_or(0);
        if steps == 0 {
            break;
        }
        for _ in 0..steps {
            for (i, j) in &mut at {
                let (x, y) = (a[*i], b[*j]);
                out[*i + *j] = x.min(y);
                *i += usize::from(x <= y);
                *j += usize::from(x > y);
            }
        }
    }
    for (at, end) in at.iter().zip(&ends) {
        merge(&a[at.0..end.0], &b[at.1..end.1], &mut out[at.0 + at.1..end.0 + end.1]);
    }
    out
}

fn merge<K: Copy + Ord>(a: &[K], b: &[K], out: &mut [K]) {
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (a[i], b[j]);
        out[i + j] = x.min(y);
        i += usize::from(x <= y);
        j += usize::from(x > y);
    }
    let (from_a, from_b) = out[i + j..].split_at_mut(a.len() - i);
    from_a.copy_from_slice(&a[i..]);
    from_b.copy_from_slice(&b[j..]);
}

/// How many keys of each run are among the `count` smallest of both.
fn split<K: Ord>(a: &[K], b: &[K], count: usize) -> (usize, usize) {
    let (mut low, mut high) = (count.saturating_sub(b.len()), count.min(a.len()));
    while low < high {
        let i = low.midpoint(high);
        // Where a[i] is not above the last that b would give, it is one of them.
        if a[i] <= b[count - i - 1] { low = i + 1 } else { high = i }
    }
    (low, count - low)
}
