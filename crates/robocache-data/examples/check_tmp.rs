//! temp
fn main() {
    for path in std::env::args().skip(1) {
        let t = std::time::Instant::now();
        match robocache_data::Dataset::check(path.as_ref(), &Default::default(), &Default::default()) {
            Ok(found) => { println!("== {path}: {} findings", found.len()); for f in found { println!("   {f}"); } }
            Err(e) => println!("== {path}: ERROR {e}"),
        }
        eprintln!("{path} {:?}", t.elapsed());
    }
}
