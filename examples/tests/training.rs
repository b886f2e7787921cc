//! Training: it learns, goes on from a checkpoint as if it had not stopped, and says what it cannot do.

use rc::Target;
use rc_examples::adamw::AdamW;
use rc_examples::gpt2::Config;
use rc_examples::training::{Plan, State, Text, Training, compile};
use rc_ir::print::{PrintOptions, print_module};
use rc_ir::verify::verify_module;

const TEXT: &[u8] = b"the quick brown fox jumps over the lazy dog, and the lazy dog sleeps on under the tree; ";

fn plan() -> Plan {
    let config = Config { layers: 2, embd: 24, heads: 3, vocab: 128, positions: 16, layer_norm_epsilon: 1e-5 };
    Plan { config, batch: 3, length: 11, seed: 5, rate: 1e-2, warmup: 4, rule: AdamW::default() }
}

/// The losses of steps from a state on, and the state that is left.
fn losses(plan: &Plan, state: State, steps: usize) -> (Vec<f64>, State) {
    rc::register();
    let (module, places) = plan.module().unwrap();
    let executable = compile(&module, &Target::host()).unwrap();
    let text = Text::new(TEXT, plan).unwrap();
    let mut training = Training::new(plan, &text, &executable, places, state).unwrap();
    let losses = (0..steps).map(|_| training.step().unwrap().loss).collect();
    (losses, training.state().unwrap())
}

#[test]
fn learns_and_goes_on_from_a_checkpoint() {
    let plan = plan();
    let (whole, _) = losses(&plan, State::new(&plan).unwrap(), 60);
    assert!(whole[59] < 0.7 * whole[0], "{whole:?}");
    let (first, state) = losses(&plan, State::new(&plan).unwrap(), 25);
    let folder = std::env::temp_dir().join(format!("rc-training-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("checkpoint.safetensors");
    state.write(&file, &plan).unwrap();
    let state = State::read(&file, &plan).unwrap();
    assert_eq!(state.count(), 25);
    let (rest, _) = losses(&plan, state, 35);
    std::fs::remove_dir_all(folder).unwrap();
    assert_eq!([first, rest].concat(), whole);
}

#[test]
fn a_gradient_that_is_no_number_changes_nothing() {
    let plan = Plan { rate: f64::INFINITY, ..plan() };
    rc::register();
    let (module, places) = plan.module().unwrap();
    let executable = compile(&module, &Target::host()).unwrap();
    let text = Text::new(TEXT, &plan).unwrap();
    let mut training = Training::new(&plan, &text, &executable, places, State::new(&plan).unwrap()).unwrap();
    training.step().unwrap();
    let error = training.step().unwrap_err();
    assert!(error.starts_with("step 2: the gradients' norm is NaN"), "{error}");
    assert_eq!(training.state().unwrap().count(), 1);
}

#[test]
fn the_step_verifies_and_round_trips() {
    rc::register();
    let (module, _) = plan().module().unwrap();
    let errors = verify_module(&module);
    assert!(errors.is_empty(), "{}", errors[0].render());
    let text = print_module(&module, &PrintOptions::PRETTY);
    let (parsed, diagnostics) = rc_parser::parse_module("step.ir", text.clone());
    let parsed = parsed.unwrap_or_else(|| panic!("{}", diagnostics[0].render()));
    assert_eq!(print_module(&parsed, &PrintOptions::PRETTY), text);
}

#[test]
fn texts_that_do_not_fit_are_refused() {
    let plan = plan();
    for (text, expected) in [
        (&b"too short"[..], "the text has 9 bytes, too few for sequences of 11: give at least 13"),
        ("größer als die Tabelle".as_bytes(), "the text has the byte 195, and the model 128 tokens"),
    ] {
        let error = Text::new(text, &plan).err().unwrap();
        assert!(error.starts_with(expected), "{error}");
    }
}
