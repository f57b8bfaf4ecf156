"""What each entry point loads: a tool that opens over SSH must not wait for torch."""

import subprocess
import sys

import pytest

HEAVY = ("vllm", "torch", "pandas", "numpy", "scipy", "transformers")


def _modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import tui_tuner.cli as c; c.parser()",
        "import tui_tuner.cli.run, tui_tuner.cli.look, tui_tuner.cli.act, tui_tuner.cli.machine, tui_tuner.cli.follow",
        "import tui_tuner.tui.app",
        "import tui_tuner.runner.__main__",
        "import tui_tuner.prepare.start, tui_tuner.prepare.doctor, tui_tuner.prepare.decision",
        "import tui_tuner.analysis.report, tui_tuner.analysis.verdict, tui_tuner.analysis.export",
    ],
)
def test_nothing_heavy_is_loaded_at_start(code: str) -> None:
    loaded = {name.partition(".")[0] for name in _modules_after(code)}
    assert not loaded & set(HEAVY)


def test_the_app_is_not_loaded_for_a_command() -> None:
    loaded = _modules_after("import tui_tuner.cli.run, tui_tuner.runner.__main__")
    assert not any(name.startswith(("textual", "tui_tuner.tui")) for name in loaded)


def test_the_worker_needs_the_model_alone() -> None:
    loaded = _modules_after("import tui_tuner.worker.load, tui_tuner.worker.quality")
    ours = {name for name in loaded if name.startswith("tui_tuner.")}
    assert all(name.startswith(("tui_tuner.model", "tui_tuner.worker")) for name in ours)
    assert not loaded & {"textual", "psutil", "platformdirs", "scipy", "packaging"}
