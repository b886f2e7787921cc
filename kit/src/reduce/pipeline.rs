//! Fewer passes.

use rc_ir::pass::{PassInstance, pipeline_text};
use rc_parser::pipeline::parse_pipeline;

/// The pipeline without passes that it takes not for the test to hold: those after the last that matters first, then single ones from the end.
/// Options go where the pass does as well without. The pipeline itself, if it cannot be read.
pub fn reduced_pipeline(pipeline: &str, mut holds: impl FnMut(&str) -> bool) -> String {
    let Ok(passes) = parse_pipeline("pipeline", pipeline) else { return pipeline.to_string() };
    let mut texts: Vec<String> = passes.iter().map(PassInstance::to_string).collect();
    let mut at = texts.len();
    while at > 0 && texts.len() > 1 {
        at -= 1;
        let mut fewer = texts.clone();
        fewer.remove(at);
        if holds(&fewer.join(",")) {
            texts = fewer;
        }
    }
    for i in 0..texts.len() {
        let Some((name, _)) = texts[i].split_once('{') else { continue };
        let mut plain = texts.clone();
        plain[i] = name.to_string();
        if parse_pipeline("pipeline", &plain.join(",")).is_ok() && holds(&plain.join(",")) {
            texts = plain;
        }
    }
    parse_pipeline("pipeline", &texts.join(",")).map_or(texts.join(","), |passes| pipeline_text(&passes))
}
