"""Running one of our modules, or pip, in an engine's Python, without leaving anything of either behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


class ChildFailed(Exception):
    """A process in the engine's Python ended badly: its last words, or why it could not be started."""

    def __init__(self, why: str, output: str = "") -> None:
        super().__init__(why)
        self.output = output


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A folder with an empty `cwd`, a `tmp`, and a `lib` that holds a link to this package and nothing else.

    The engine's Python would otherwise see this environment's packages beside its own, and a folder called `vllm` in
    the working directory would stand in for vLLM.
    """
    with tempfile.TemporaryDirectory(prefix="tt-ask-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for part in ("cwd", "tmp", "lib"):
            (folder / part).mkdir(mode=0o700)
        (folder / "lib" / "tui_tuner").symlink_to(_PACKAGE)
        yield folder


def environment(folder: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """The person's environment with `folder`'s parts in it and usage reports off."""
    env = dict(os.environ)
    for name in ("PYTHONHOME", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV"):
        env.pop(name, None)
    env["PYTHONPATH"] = os.pathsep.join([str(folder / "lib"), *filter(None, [env.get("PYTHONPATH")])])
    env["TMPDIR"] = str(folder / "tmp")
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    env["PYTHONIOENCODING"] = "utf-8"
    env["VLLM_NO_USAGE_STATS"] = "1"
    env["DO_NOT_TRACK"] = "1"
    env.update(extra or {})
    return env


def run(
    command: Sequence[str],
    *,
    folder: Path,
    seconds: float,
    request: bytes = b"",
    extra_env: dict[str, str] | None = None,
) -> bytes:
    """Standard output of `command`, run in a process group of its own in `folder`'s empty working directory.

    Raises ChildFailed where it cannot be started, ends with another status than 0, or takes longer than `seconds`;
    its whole group is gone then.
    """
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder / "cwd",
                env=environment(folder, extra_env),
                start_new_session=True,
            )
        except OSError as error:
            raise ChildFailed(f"{command[0]} cannot be started: {error.strerror or error}") from None
        try:
            answer, _ = process.communicate(request, timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"{command[0]} gave no answer within {seconds:.0f} seconds", _text(errors)) from None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if process.returncode:
            output = _text(errors)
            raise ChildFailed(last_words(output) or _ending(process.returncode), output)
        return answer


def last_words(output: str) -> str:
    """The last line of a log that says something: where a Python traceback has its exception."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""


def _ending(code: int) -> str:
    return f"it was killed by signal {-code}" if code < 0 else f"it ended with status {code}"


def _text(file: object) -> str:
    assert hasattr(file, "seek") and hasattr(file, "read")
    file.seek(0)
    data = file.read()
    return data.decode(errors="replace") if isinstance(data, bytes) else ""
