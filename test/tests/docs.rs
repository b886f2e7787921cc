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

/// Types in the text are code: elsewhere a renderer takes `<i1>` for markup, and shows nothing.
#[test]
fn no_page_has_markup() {
    let docs = tools::root().join("docs");
    let mut found = Vec::new();
    for folder in ["", "reference"] {
        for page in std::fs::read_dir(docs.join(folder)).unwrap().flatten().map(|e| e.path()) {
            if page.extension().is_some_and(|e| e == "md") {
                found.extend(
                    markup(&std::fs::read_to_string(&page).unwrap()).map(|line| format!("{}: {line}", page.display())),
                );
            }
        }
    }
    assert!(found.is_empty(), "write types as code:\n{}", found.join("\n"));
}

/// The lines with a tag outside of code.
fn markup(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        fenced ^= line.trim_start().starts_with("```");
        let outside = line.split('`').step_by(2);
        let is_tag = |part: &str| {
            part.match_indices('<').any(|(i, _)| part[i + 1..].starts_with(|c: char| c.is_ascii_alphabetic()))
        };
        !fenced && !line.trim_start().starts_with("```") && outside.into_iter().any(is_tag)
    })
}
