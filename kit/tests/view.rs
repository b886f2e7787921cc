//! The page of a compilation.

use rc_ir::Diagnostic;
use rc_ir::pass::PassManager;
use rc_kit::view::{Recorder, page};
use serde_json::Value;
use std::time::Instant;

const PIPELINE: &str = "decompose,canonicalize,cse,fuse,cse,lower-loops,schedule,lower-kernel,plan-buffers,lower-tiles";

/// The page of a module, and what is said on the way.
fn compiled(text: &str, pipeline: &str) -> (String, Vec<Diagnostic>) {
    rc_kit::register();
    let (module, diagnostics) = rc_parser::parse_module("view.ir", text);
    let mut module = module.unwrap_or_else(|| panic!("{diagnostics:?}"));
    let recorder = Recorder::default();
    let mut manager = PassManager::new(rc_parser::pipeline::parse_pipeline("p", pipeline).unwrap());
    manager.instrument(recorder.hook());
    let report = manager.run(&mut module);
    let said: Vec<Diagnostic> = report.diagnostics.into_iter().chain(report.errors).collect();
    (page("a <b> & \"c\"", &recorder, &said, &[]), said)
}

fn data(page: &str) -> Value {
    let text = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    serde_json::from_str(text).unwrap()
}

fn example() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/mlp.ir");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_page_has_every_part() {
    let (html, said) = compiled(&example(), PIPELINE);
    let data = data(&html);
    assert!(html.contains("<noscript>") && html.contains("<title>a &lt;b> &amp; &quot;c&quot;"), "{}", &html[..400]);
    for loaded in ["http://", "https://", "<link", "src="] {
        assert!(!html.replace("http://www.w3.org/2000/svg", "").contains(loaded), "{loaded}");
    }
    // Every pass that was asked for, and those that these required.
    let stages = data["stages"].as_array().unwrap();
    let passes: Vec<&str> = stages.iter().map(|s| s["pass"].as_str().unwrap()).collect();
    assert_eq!(passes[0], "input");
    assert!(PIPELINE.split(',').all(|pass| passes.contains(&pass)), "{passes:?}");
    assert_eq!(data["remarks"].as_array().unwrap().len(), said.len());
    let nodes = data["graph"]["nodes"].as_array().unwrap();
    assert!(nodes.iter().any(|n| !n["inner"].as_array().unwrap().is_empty()), "{nodes:?}");
    let kernels = data["kernels"].as_array().unwrap();
    assert!(kernels.iter().all(|k| k["launches"].as_i64() >= Some(1) && k["schedule"] != ""), "{kernels:?}");
    let memory = &data["buffers"][0];
    let peak = memory["peak"].as_u64().unwrap() as usize;
    let most = memory["bytes"].as_array().unwrap().iter().map(|b| b.as_i64().unwrap()).max();
    assert_eq!(memory["bytes"][peak].as_i64(), most);
    assert!(most <= memory["arena"].as_i64() && most > Some(0), "{memory}");
    if let Some(path) = std::env::var_os("RC_VIEW_OUT") {
        std::fs::write(path, html).unwrap();
    }
}

/// The lines of a stage, made of those before it and its changes, are its own.
#[test]
fn changes_lead_from_stage_to_stage() {
    let data = data(&compiled(&example(), PIPELINE).0);
    let numbers = |v: &Value| -> Vec<u64> { v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect() };
    let mut before = numbers(&data["stages"][0]["lines"]);
    for stage in &data["stages"].as_array().unwrap()[1..] {
        let changes: Vec<Vec<u64>> = stage["changes"].as_array().unwrap().iter().map(numbers).collect();
        if stage["lines"].is_null() {
            assert!(changes.is_empty());
            continue;
        }
        let after = numbers(&stage["lines"]);
        let (mut made, mut at) = (Vec::<u64>::new(), 0);
        for c in &changes {
            made.extend(&before[at..c[0] as usize]);
            made.extend(&after[c[2] as usize..c[3] as usize]);
            at = c[1] as usize;
        }
        made.extend(&before[at..]);
        assert_eq!(made, after);
        before = after;
    }
}

#[test]
fn text_cannot_leave_its_element() {
    let text = "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> attributes {my.note = \"</script><script>alert(1)<!-- {{title}}\"} {\n  %y = core.exp %x : tensor<4xf32>\n  func.return %y\n}\n";
    let (html, _) = compiled(text, "cse");
    assert_eq!(html.matches("</script>").count(), 2);
    assert!(data(&html)["lines"].to_string().contains("</script><script>alert(1)"));
}

#[test]
fn a_failing_pass_is_shown() {
    let text = "func.func @f(%q: tensor<1x1x1x1x1xf32>) -> tensor<1x1x1x1x1xf32> {\n  %y = core.attention %q, %q, %q : tensor<1x1x1x1x1xf32>\n  func.return %y\n}\n";
    let data = data(&compiled(text, "lower-loops").0);
    let stages = data["stages"].as_array().unwrap();
    assert_eq!(stages.last().unwrap()["failed"], true);
    assert_eq!(data["remarks"].as_array().unwrap().last().unwrap()["kind"], "error");
}

/// A model's worth of operations: the bounds for GPT-2 are 10 MB and a second in a release build.
#[test]
fn a_large_compilation_is_small_and_quick() {
    let mut text =
        String::from("func.func @main(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>) -> tensor<64x64xf32> {\n");
    for i in 0..150 {
        let from = if i == 0 { "x".into() } else { format!("h{}", i - 1) };
        text += &format!(
            "  %a{i} = tensor.linear %{from}, %w : tensor<64x64xf32>\n  %g{i} = tensor.gelu %a{i} : tensor<64x64xf32>\n  %h{i} = tensor.softmax %g{i} {{dim = 1}} : tensor<64x64xf32>\n"
        );
    }
    text += "  func.return %h149\n}\n";
    let start = Instant::now();
    let (html, _) = compiled(&text, PIPELINE);
    let size = html.len();
    eprintln!("{} bytes, {:?} with the compilation", size, start.elapsed());
    assert!(size < 10_000_000, "{size} bytes");
}
