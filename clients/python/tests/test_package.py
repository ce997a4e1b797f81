"""The package as users get it, and what it costs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import Dev, a_run, an_input

FOLDER = Path(__file__).parents[1]

# README's program for scripts.
PROGRAM = """
import json, sys
from skein_agui.sync import Skein
with Skein(sys.argv[1]) as skein, skein.run(sys.argv[2]) as run:
    for event in run.publish(json.loads(sys.argv[3])):
        print(event["type"])
"""


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_works_in_an_empty_environment(dev: Dev, tmp_path: Path):
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, FOLDER)
    wheel = tmp_path / "skein_agui-0.1.0-py3-none-any.whl"
    python = tmp_path / "empty/bin/python"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "empty")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", "--disable-pip-version-check", wheel)
    run_input = an_input()
    events = a_run(run_input)
    assert run(python, "-c", PROGRAM, dev.url, json.dumps(run_input), json.dumps(events)).split() == [e["type"] for e in events]
    assert [json.loads(e) for e in dev.events(run_input["threadId"], "r")] == events
    installed = run(python, "-c", "import skein_agui, pathlib; print(*pathlib.Path(skein_agui.__file__).parent.glob('*.typed'))")
    assert installed.strip().endswith("py.typed")


def test_what_the_middleware_costs_an_event(dev: Dev):
    said = run(sys.executable, FOLDER / "benchmark.py", dev.url, "--quick", env={"PYTHONPATH": str(FOLDER / "src")})
    at_full_speed, paced = [int(cost) for cost in re.findall(r": (-?\d+) µs", said)]
    assert at_full_speed < 50 and paced < 300, said  # paced, requests cost more than events: README says why
