//! Writes pages for inspection: run `cargo test -p serval-report --test pages`, then open
//! `pages/*.html` in the target directory's `tmp`.

#[expect(dead_code, reason = "pages are drawn of some of the samples")]
#[path = "../src/sample.rs"]
mod sample;

#[test]
fn pages_for_inspection() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, document) in
        [("paced", sample::paced()), ("unpaced", sample::unpaced()), ("lagging", sample::lagging())]
    {
        let page = serval_report::html::html(&document);
        assert!(page.len() < 400_000, "{}", page.len());
        std::fs::write(folder.join(format!("{name}.html")), page).unwrap();
    }
}
