"""Makes `docs/run.svg`: the app's run screen over a recorded session, cut off in the middle of its second point.

python docs/picture.py
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from pathlib import Path

from tui_tuner.store import sessionfile
from tui_tuner.tui.app import TunerApp
from tui_tuner.tui.services import Services

HERE = Path(__file__).parent
RECORDED = HERE.parent / "sessions" / "h200-gpu_memory_utilization.jsonl"


_TIME = re.compile(r'^(\{"type":"[a-z_]+","t":)([0-9.]+)')


def _until_the_speed_pass(lines: list[str]) -> list[str]:
    """The events up to some seconds into the speed pass of the second point, moved to end now."""
    first = next(i for i, line in enumerate(lines) if '"n":2,"name":"speed"' in line)
    cut = lines[: first + 16]
    found = _TIME.match(cut[-1])
    assert found
    later = time.time() - float(found[2])
    return [_TIME.sub(lambda m: f"{m[1]}{float(m[2]) + later:.3f}", line) for line in cut]


async def _picture() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / RECORDED.name
        path.write_text("".join(_until_the_speed_pass(RECORDED.read_text().splitlines(keepends=True))))
        path.chmod(0o600)
        app = TunerApp(Services(folder), open_session=path)
        with sessionfile.Writer.open(path):  # as a runner holds it
            async with app.run_test(size=(80, 24)) as pilot:
                await pilot.pause(2.0)
                return app.export_screenshot(title="tui-tuner")


if __name__ == "__main__":
    (HERE / "run.svg").write_text(asyncio.run(_picture()))
