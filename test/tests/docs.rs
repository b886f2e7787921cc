//! The reference pages are what the declarations say; `make docs` rewrites them.

use rc_test::tools;
use std::path::Path;
use std::process::Command;

const PAGES: [&str; 8] = ["func", "tensor", "core", "loop", "kernel", "host", "passes", "schedule"];

#[test]
fn reference_pages_are_not_stale() {
    let folder = tools::rc_folder(Path::new(env!("CARGO_BIN_EXE_FileCheck"))).unwrap();
    let mut stale = Vec::new();
    for page in PAGES {
        let output = Command::new(folder.join("rc-opt")).args(["--print-docs", page]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = tools::root().join("docs/reference").join(format!("{page}.md"));
        let text = String::from_utf8(output.stdout).unwrap();
        if std::fs::read_to_string(&path).unwrap_or_default() == text {
            continue;
        }
        if std::env::var_os("RC_UPDATE").is_some() {
            std::fs::write(&path, text).unwrap();
        } else {
            stale.push(page);
        }
    }
    assert!(stale.is_empty(), "docs/reference/ is stale for {}; run 'make docs'", stale.join(", "));
}

/// Every file of the book is in its table of contents, and every entry there is a file.
#[test]
fn the_book_has_all_its_pages() {
    let docs = tools::root().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut linked: Vec<String> =
        summary.split("](").skip(1).filter_map(|s| Some(s.split_once(')')?.0.to_string())).collect();
    let below = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(docs.join(folder)).unwrap().flatten();
        let names = entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.ends_with(".md"));
        names.map(|n| format!("{folder}{n}")).collect()
    };
    let mut there: Vec<String> =
        [below(""), below("reference/")].concat().into_iter().filter(|n| n != "SUMMARY.md").collect();
    linked.sort();
    there.sort();
    assert_eq!(linked, there);
}
