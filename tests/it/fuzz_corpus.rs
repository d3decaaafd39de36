//! The corpora of the fuzz targets, replayed without a fuzzer: what was found once stays found.

#[path = "../fuzz/targets.rs"]
mod targets;

use std::path::Path;

#[test]
fn every_target_holds_for_its_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, _) in targets::TARGETS {
        let files = std::fs::read_dir(corpus.join(name)).unwrap();
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            println!("{}", path.display());
            targets::run(name, &bytes);
            // Cut and shifted, every seed is many.
            for at in (0..bytes.len()).step_by(1 + bytes.len() / 40) {
                targets::run(name, &bytes[..at]);
                targets::run(name, &bytes[at..]);
            }
            count += 1;
        }
        assert!(count > 1, "{name} has no corpus");
    }
}
