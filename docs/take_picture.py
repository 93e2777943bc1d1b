"""Takes docs/images/report.png: the first screen of the demo's page. Run it on an idle machine that has Chromium:

    python docs/take_picture.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "images" / "report.png"
sys.path.insert(0, str(ROOT))

from tests.reporting.browser import Browser, find_browser  # noqa: E402

WIDTH, HEIGHT = 1280, 920


def main() -> None:
    program = find_browser()
    if program is None:
        sys.exit("no Chromium was found: tests/get_browser.sh gets one")
    with tempfile.TemporaryDirectory() as place:
        subprocess.run([sys.executable, "-m", "paceline", "demo", "--out", f"{place}/demo"], check=True, cwd=ROOT)
        browser = Browser(program, Path(place) / "profile")
        tab = browser.open(Path(place, "demo", "report.html"), width=WIDTH, height=HEIGHT)
        tab.until("document.querySelector('#answer figure').dataset.drawn !== undefined")
        tab.picture(PICTURE, whole=False)
        tab.close()
        browser.close()
    print(f"{PICTURE}: now see that the page has no line about a busy machine")


if __name__ == "__main__":
    main()
