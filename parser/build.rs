//! Makes the parser of rewrite rules from its grammar.

fn main() {
    println!("cargo:rerun-if-changed=src/rules/grammar.lalrpop");
    lalrpop::Configuration::new()
        .use_cargo_dir_conventions()
        .process_file("src/rules/grammar.lalrpop")
        .expect("a grammar without conflicts");
}
