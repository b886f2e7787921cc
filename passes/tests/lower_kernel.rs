//! Kernels, scheduled and lowered: they verify, print and parse back, and compute what the nests compute.

use rc_ir::print::{PrintOptions, print_module};
use rc_ir::{Module, verify_module};
use rc_passes::fuse::FuseOptions;
use rc_passes::lower_kernel::lower_module;
use rc_passes::lower_loops::lower_loops;
use rc_passes::schedule::Target;

fn parse(name: &str, text: &str) -> Module {
    rc_dialects::register();
    let (module, diagnostics) = rc_parser::parse_module(name, text);
    let errors: String = diagnostics.iter().map(|d| d.render()).collect();
    assert!(errors.is_empty(), "{errors}");
    module.expect("a module")
}

fn check(module: &Module) {
    let errors: String = verify_module(module).iter().map(|d| d.render()).collect();
    assert!(errors.is_empty(), "{errors}\n{}", print_module(module, &PrintOptions::default()));
}

fn targets() -> Vec<Target> {
    [("cpu", None), ("cpu", Some("x86-64-v4")), ("cuda", None), ("cuda", Some("sm_80"))]
        .map(|(machine, arch)| Target::find(machine, arch).unwrap())
        .into()
}

fn kernels() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let only = std::env::var("KERNEL").ok();
    let name = |p: &std::path::PathBuf| p.file_stem().unwrap().to_str().unwrap().to_string();
    let wanted = |n: &String| only.as_ref().is_none_or(|o| o == n);
    files.iter().map(|p| (name(p), std::fs::read_to_string(p).unwrap())).filter(|k| wanted(&k.0)).collect()
}

#[test]
fn lowered_kernels_verify() {
    for (name, text) in kernels() {
        for target in targets() {
            let mut module = parse(&name, &text);
            check(&module);
            let remarks = lower_module(&mut module, &target).unwrap_or_else(|d| panic!("{name}: {}", d.render()));
            if std::env::var("SHOW").is_ok() {
                remarks.iter().for_each(|r| println!("{}", r.render()));
                println!("{}", print_module(&module, &PrintOptions::default()));
            }
            check(&module);
            let printed = print_module(&module, &PrintOptions::default());
            let again = parse(&name, &printed);
            assert_eq!(print_module(&again, &PrintOptions::default()), printed);
        }
    }
}

/// Every core operation, alone in a function, gets a schedule that can be applied.
#[test]
fn every_core_op_is_lowered() {
    rc_dialects::register();
    let mut failures = String::new();
    for def in rc_ir::op_def::registered() {
        if !def.name.starts_with("rc.core.") || def.example.is_empty() {
            continue;
        }
        for target in targets() {
            let mut module = parse(def.name, def.example);
            let lowered = lower_all(&mut module, &target, true);
            if let Err(why) = lowered {
                failures += &format!("{}: {why}\n", def.name);
                break;
            }
            check(&module);
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// Each op alone (or fused), lowered for the target.
fn lower_all(module: &mut Module, target: &Target, fuse: bool) -> Result<(), String> {
    let options = FuseOptions { fuse, ..FuseOptions::default() };
    for body in &mut module.bodies {
        rc_passes::fuse::fuse(body, &options);
    }
    lower_loops(module).map_err(|d| d.render())?;
    if std::env::var("SHOW").is_ok() {
        println!("{}", print_module(module, &PrintOptions::default()));
    }
    lower_module(module, target).map(|_| ()).map_err(|d| d.render())
}
