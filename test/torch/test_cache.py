"""The cache between processes: what one compiled, the next finds, and nothing else."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(7, 13), torch.nn.{activation}, torch.nn.Linear(13, 5)).eval()
x = torch.randn({rows}, 7)
with torch.no_grad():
    expected = model(x)
    actual = torch.compile(model, backend="rc", fullgraph=True, options={options})(x)
torch.testing.assert_close(actual, expected)
"""


def run(folder, activation="GELU()", rows=3, options="None", **environment):
    env = {**os.environ, "RC_CACHE": "", "RC_CACHE_DIR": str(folder), "RC_LOGS": "time", **environment}
    script = SCRIPT.format(activation=activation, rows=rows, options=options)
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def by_graph(said):
    return "found in the cache by their graph" in said


@pytest.mark.parametrize("activation", ["GELU()", "MaxPool1d(1)"])
def test_a_second_process_neither_traces_nor_compiles(tmp_path, activation):
    first = run(tmp_path, activation)
    assert "compiled in" in first and not by_graph(first)
    second = run(tmp_path, activation)
    assert by_graph(second) and "translated" not in second and "traced" not in second
    # Weights are arguments: others of the same shapes are no other graph.
    assert by_graph(run(tmp_path, activation))


@pytest.mark.parametrize("change", [{"rows": 4}, {"activation": "Tanh()"}, {"options": '{"emulate_precision_casts": True}'}])
def test_another_graph_is_another_program(tmp_path, change):
    run(tmp_path)
    assert not by_graph(run(tmp_path, **change))


def test_modes_are_told_apart(tmp_path):
    run(tmp_path)
    script = SCRIPT.format(activation="GELU()", rows=3, options="None").replace("torch.manual_seed(0)", "torch.use_deterministic_algorithms(True)")
    env = {**os.environ, "RC_CACHE": "", "RC_CACHE_DIR": str(tmp_path), "RC_LOGS": "time"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and not by_graph(done.stderr), done.stderr


def test_damaged_entries_are_compiled_anew(tmp_path):
    run(tmp_path)
    entries = sorted(tmp_path.rglob("*.rcp"))
    for entry in entries:
        entry.write_bytes(entry.read_bytes()[:-100])
    said = run(tmp_path)
    assert "compiled in" in said and "the cache's entry is not used" in said
    assert by_graph(run(tmp_path))


def test_the_cache_can_be_off(tmp_path):
    run(tmp_path, RC_CACHE="off")
    assert not list(tmp_path.iterdir())
    run(tmp_path)
    assert not by_graph(run(tmp_path, RC_CACHE="off"))


def test_remarks_are_said_again(tmp_path):
    run(tmp_path)
    said = run(tmp_path, RC_LOGS="remarks,time")
    assert "[rc.remarks]" in said and "compiled in" in said


def test_many_processes_at_once(tmp_path):
    env = {**os.environ, "RC_CACHE": "", "RC_CACHE_DIR": str(tmp_path)}
    script = SCRIPT.format(activation="GELU()", rows=3, options="None")
    started = [subprocess.Popen([sys.executable, "-c", script], env=env, stderr=subprocess.PIPE) for _ in range(4)]
    for process in started:
        _, said = process.communicate()
        assert process.returncode == 0, said.decode()
    assert not list(tmp_path.rglob("*.part"))
    assert by_graph(run(tmp_path))
