"""Writes the reference of the package from its docstrings: ``python python/reference.py``

It reads the sources without importing them. It leaves out names without a docstring and names that
begin with an underscore, and includes methods that a class inherits inside the package.
"""

from __future__ import annotations

import ast
import pathlib
import re
import textwrap

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent / "docs" / "python-reference.md"

HEAD = """# Reference of the Python package

Made of the docstrings by `python python/reference.py`. [The Python package](python.md) shows how
the parts work together.
"""

# Heading, module, and what of it is shown; the base classes whose methods are a class's own.
SECTIONS = [
    ("Opening", "_open.py", ["open"]),
    ("Files of bytes", "_file.py", ["File"]),
    ("Files of text", "_text.py", ["TextFile"]),
    ("Operations", "_nowait.pyi", ["Operation"]),
    ("Whole files", "_whole.py", ["read_bytes", "read_text", "write_bytes", "write_text", "copy"]),
    ("Paths", "_path.pyi", ["Path"]),
    ("Memory and backends", "_buffer.py", ["AlignedBuffer"]),
    ("", "__init__.py", ["Backend", "backend"]),
    ("Limits", "_limits.py", ["Limits", "limits", "InFlight", "in_flight"]),
    ("fsspec", "fsspec.py", ["FileSystem"]),
    ("caio", "caio.py", ["install", "AsyncioContext"]),
]
INSIDE = {"File": ["_stream.py:Stream", "_nowait.pyi:RawFile"]}

Definition = ast.FunctionDef | ast.AsyncFunctionDef


def definitions(module: str) -> dict[str, ast.stmt]:
    """Return the definitions of a module by name. For an overloaded function, return the last
    definition, which has the docstring."""
    tree = ast.parse((HERE / "nowait" / module).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def plain(text: str) -> str:
    """Turn the markup of a docstring into Markdown."""
    text = text.replace("``", "`")
    if text.endswith("::") or " ::\n" in text:
        text = text.replace(" ::\n", ":\n")
    return text


def signature(node: Definition, name: str) -> str:
    """Return a function's signature; the annotations of its arguments are left to type checkers."""
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): pass").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    every = arguments.args
    for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg):
        if argument is not None:
            argument.annotation = None
    every_word = ast.unparse(every).replace("permissions=438", "permissions=0o666")
    words = re.sub(r"^(self|cls)(, /)?(, )?", "", every_word)
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    is_awaited = isinstance(node, ast.AsyncFunctionDef)
    return f"{'await ' if is_awaited else ''}{name}({words}){result}"


def function(node: Definition, name: str) -> list[str]:
    text = ast.get_docstring(node)
    if text is None:
        return []
    call = textwrap.wrap(signature(node, name), 96, subsequent_indent="    ")
    return ["", "```python", *call, "```", "", *plain(text).splitlines()]


def methods(node: ast.ClassDef) -> dict[str, Definition]:
    """Return the described methods, including those inherited from classes that have no section."""
    found: dict[str, Definition] = {}
    bases = [definitions(at.split(":")[0])[at.split(":")[1]] for at in INSIDE.get(node.name, [])]
    for owner in (node, *bases):
        assert isinstance(owner, ast.ClassDef)
        for item in owner.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if not item.name.startswith("_") and item.name not in found:
                    found[item.name] = item
    return found


def described(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return function(node, node.name)
    assert isinstance(node, ast.ClassDef)
    lines = ["", f"### class {node.name}", "", *plain(ast.get_docstring(node) or "").splitlines()]
    for name, method in methods(node).items():
        is_value = any(ast.unparse(by) == "property" for by in method.decorator_list)
        if is_value and (text := ast.get_docstring(method)):
            lines += ["", f"* `{name}`: {plain(text)}"]
        else:
            lines += function(method, name)
    return lines


def reference() -> str:
    """Return the page."""
    lines = HEAD.splitlines()
    for heading, module, names in SECTIONS:
        if heading:
            lines += ["", f"## {heading}"]
        known = definitions(module)
        for name in names:
            lines += described(known[name])
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(reference())
