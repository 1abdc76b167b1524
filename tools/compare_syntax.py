"""Compare the Python files of two commits without docstrings and comments.

tools/compare_syntax.py HEAD~1 HEAD             a commit changed nothing but docstrings and comments
tools/compare_syntax.py --messages HEAD~1 HEAD  texts of log messages and errors do not count either

Print each file whose syntax tree differs, and exit with 1 if there is one. A file that was renamed
without other changes is compared with itself under its old name.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys

#: Methods of a logger. Their texts are read by people, not by programs.
LOGGING = {"debug", "info", "warning", "error", "critical", "exception", "log"}


class WithoutProse(ast.NodeTransformer):
    """Remove docstrings, and replace texts in log calls and raised exceptions if ``messages``."""

    def __init__(self, messages: bool) -> None:
        self._messages = messages
        self._inside = 0

    def _documented(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        body: list[ast.stmt] = node.body  # type: ignore[attr-defined]
        # A string that is a statement documents the name before it.
        rest = [s for s in body if not _is_text(s) and not isinstance(s, ast.Pass)]
        node.body = rest or [ast.Pass()]  # type: ignore[attr-defined]
        return node

    visit_Module = visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _documented

    def _with_messages(self, node: ast.AST) -> ast.AST:
        self._inside += 1
        self.generic_visit(node)
        self._inside -= 1
        return node

    visit_Raise = _with_messages

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in LOGGING:
            return self._with_messages(node)
        return self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        if not (self._messages and self._inside):
            return self.generic_visit(node)
        # The values of an f-string count, the words around them do not.
        values: list[ast.expr] = [v for v in node.values if isinstance(v, ast.FormattedValue)]
        return ast.copy_location(ast.JoinedStr(values), node) if values else ast.Constant("")

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if self._messages and self._inside and isinstance(node.value, str):
            return ast.Constant("")
        return node


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def skeleton(source: str, messages: bool = False) -> str:
    """Return a text of a module's syntax tree that prose does not change."""
    return ast.dump(WithoutProse(messages).visit(ast.parse(source)))


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], check=True, capture_output=True, encoding="utf-8"
    ).stdout


def changed(old: str, new: str) -> list[tuple[str, str]]:
    """Return the changed Python files as pairs of their names in both commits, "" where there is none."""
    pairs = []
    for line in _git("diff", "--name-status", "-M", old, new, "--", "*.py").splitlines():
        status, *names = line.split("\t")
        if status == "A":
            pairs.append(("", names[0]))
        elif status == "D":
            pairs.append((names[0], ""))
        else:
            pairs.append((names[0], names[-1]))
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", action="store_true", help="ignore log and error texts, too")
    parser.add_argument("old")
    parser.add_argument("new")
    arguments = parser.parse_args()
    different = False
    for before, after in changed(arguments.old, arguments.new):
        texts = [
            skeleton(_git("show", f"{commit}:{name}"), arguments.messages) if name else ""
            for commit, name in ((arguments.old, before), (arguments.new, after))
        ]
        if texts[0] != texts[1]:
            different = True
            print(after or before)
    return int(different)


if __name__ == "__main__":
    sys.exit(main())
