//! The programs' modules are sound: they verify, and their text parses back to the same text.

use rc_examples::gpt2::{Config, Length, module};
use rc_ir::Type;
use rc_ir::print::{PrintOptions, print_module};
use rc_ir::verify::verify_module;

const TINY: Config = Config { layers: 2, embd: 24, heads: 3, vocab: 11, positions: 8, layer_norm_epsilon: 1e-5 };

#[test]
fn verifies_and_round_trips() {
    for length in [Length::Fixed(1), Length::Fixed(7), Length::Symbolic { min: 1, max: 8 }] {
        for (batch, dtype) in [(1, Type::f32()), (3, Type::bf16())] {
            let module = module(&TINY, batch, length, dtype).unwrap();
            let errors = verify_module(&module);
            assert!(errors.is_empty(), "{length:?} {dtype}: {}", errors[0].render());
            for form in [PrintOptions::PRETTY, PrintOptions::GENERIC] {
                let text = print_module(&module, &form);
                let (parsed, diagnostics) = rc_parser::parse_module("gpt2.ir", text.clone());
                let parsed = parsed.unwrap_or_else(|| panic!("{}", diagnostics[0].render()));
                assert_eq!(print_module(&parsed, &form), text);
            }
        }
    }
}

#[test]
fn small_has_the_published_size() {
    let parameters: i64 = Config::SMALL.weights().values().map(|shape| shape.iter().product::<i64>()).sum();
    assert_eq!(parameters, 124_439_808);
}

#[test]
fn sizes_that_make_no_model_are_refused() {
    let f32 = Type::f32();
    for (config, batch, length, expected) in [
        (Config { heads: 5, ..TINY }, 1, Length::Fixed(1), "a width of 24 does not divide into 5 heads"),
        (Config { layers: 0, ..TINY }, 1, Length::Fixed(1), "every size of a model is at least 1"),
        (TINY, 0, Length::Fixed(1), "a batch of 0 sequences"),
        (TINY, 1, Length::Fixed(9), "a length of 9 to 9, for a model of 8 positions"),
        (TINY, 1, Length::Symbolic { min: 4, max: 3 }, "a length of 4 to 3"),
    ] {
        let error = module(&config, batch, length, f32).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}
