"""The page of the documentation that is generated from the docstrings."""

from __future__ import annotations

import pathlib
import runpy

SCRIPT = pathlib.Path(__file__).parent.parent / "reference.py"
PAGE = SCRIPT.parent.parent / "docs" / "python-reference.md"


def test_the_page_is_what_the_docstrings_say() -> None:
    made = runpy.run_path(str(SCRIPT))["reference"]()
    assert PAGE.read_text() == made, "run python python/reference.py"


def test_each_name_of_the_package_is_on_it() -> None:
    import nowait

    page = PAGE.read_text()
    for name in nowait.__all__:
        assert f"\n### class {name}\n" in page or f"{name}(" in page or name == "CacheMode", name
