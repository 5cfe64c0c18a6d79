"""Selection by what a change can reach (tools/reach): each rule on a small tree, and its tables against this tree."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tools.reach.changes import NoBaseError, read_change
from tools.reach.choice import choose
from tools.reach.graph import Graph
from tools.reach.history import judge
from tools.reach.rules import DATA, SMOKE, SUBJECTS, is_always_run, subjects_of
from tools.reach.tree import Tree, git, make_tree, read_checkout

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = {
    "signalbox/v1/worker_pb2.py": "",
    "signalbox/cli/commands/one.py": "",
    "signalbox/cli/main.py": "from importlib import import_module\nimport_module(f'signalbox.cli.commands.{x}')\n",
    "frontend_svc/__main__.py": "from frontend_svc.server import run\n",
    "frontend_svc/server.py": "from frontend_svc.api.page import page\nfrom frontend_svc.text import words\n",
    "frontend_svc/text/words.py": "",
    "frontend_svc/api/page/page.py": "",
    "frontend_svc/api/page/web/page.js": "",
    "worker_svc/runner/load.py": "from signalbox.v1 import worker_pb2\n",
    "worker_svc/runner/native/kernel.cpp": "",
    "protos/signalbox/v1/worker.proto": "",
    "docs/design.md": "",
    "k8s/base/pod.yaml": "",
    "pyproject.toml": "",
}
WORDS, LOAD, PAGE = "frontend_svc/text/words.py", "worker_svc/runner/load.py", "frontend_svc/api/page/page.py"
CASES: dict[str, tuple[dict[str, str], str, bool]] = {
    "import": ({"tests/a/test_a.py": "import frontend_svc.text.words\n"}, WORDS, True),
    "import of a name": ({"tests/a/test_a.py": "from frontend_svc.text.words import x\n"}, WORDS, True),
    "import inside a function": (
        {"tests/a/test_a.py": "def test():\n    from worker_svc.runner import load\n"},
        LOAD,
        True,
    ),
    "import for type checking": (
        {"tests/a/test_a.py": "if TYPE_CHECKING:\n    from worker_svc.runner import load\n"},
        LOAD,
        False,
    ),
    "no edge": ({"tests/a/test_a.py": "import worker_svc.runner.load\n"}, WORDS, False),
    "way over others": (
        {
            "tests/a/test_a.py": "from tests.a import help\n",
            "tests/a/help.py": "import worker_svc.runner.load\n",
        },
        "signalbox/v1/worker_pb2.py",
        True,
    ),
    "package on the way": (
        {"tests/a/test_a.py": "import tests.b.help\n", "tests/b/help.py": "", "tests/b/__init__.py": ""},
        "tests/b/__init__.py",
        True,
    ),
    "importlib": ({"tests/a/test_a.py": "import_module('worker_svc.runner.load')\n"}, LOAD, True),
    "prefix of modules": (
        {"tests/signalbox/test_a.py": "from signalbox.cli.main import main\n"},
        "signalbox/cli/commands/one.py",
        True,
    ),
    "patched name": ({"tests/a/test_a.py": "patch('frontend_svc.text.words.Word.size', 1)\n"}, WORDS, True),
    "entry point": ({"tests/a/test_a.py": "start('worker_svc.runner.load:main')\n"}, LOAD, True),
    "program": (
        {
            "tests/a/test_a.py": "[python, '-m', 'tools.try']\n",
            "tools/try/__main__.py": "import frontend_svc.text.words",
        },
        WORDS,
        True,
    ),
    "docstring": ({"tests/a/test_a.py": "'worker_svc.runner.load'\n"}, LOAD, False),
    "fixture that is asked for": (
        {
            "tests/a/test_a.py": "def test(one): pass\n",
            "tests/conftest.py": "from frontend_svc.text.words import one\n",
        },
        WORDS,
        True,
    ),
    "fixture by another name": (
        {
            "tests/a/test_a.py": "def test(one): pass\n",
            "tests/a/conftest.py": "import frontend_svc.text.words\n@pytest.fixture(name='one')\ndef _one(): pass\n",
        },
        WORDS,
        True,
    ),
    "fixture that nobody asks for": (
        {
            "tests/a/test_a.py": "def test(two): pass\n",
            "tests/conftest.py": "from frontend_svc.text.words import one\n",
        },
        WORDS,
        False,
    ),
    "fixture for all": (
        {
            "tests/a/test_a.py": "",
            "tests/conftest.py": "import worker_svc.runner.load\n@fixture(autouse=True)\ndef f(): pass",
        },
        LOAD,
        True,
    ),
    "hook": (
        {
            "tests/a/test_a.py": "",
            "tests/conftest.py": "import worker_svc.runner.load\ndef pytest_configure(): pass",
        },
        LOAD,
        True,
    ),
    "root, in the mirror": ({"tests/frontend_svc/test_a.py": "import frontend_svc.server\n"}, WORDS, True),
    "program, in the mirror": ({"tests/frontend_svc/test_a.py": "run('frontend_svc')\n"}, WORDS, True),
    "command, in the mirror": ({"tests/frontend_svc/test_a.py": "run('frontend-svc')\n"}, WORDS, True),
    "root, elsewhere": ({"tests/a/test_a.py": "import frontend_svc.server\n"}, WORDS, False),
    "root, elsewhere, by a helper of the mirror": (
        {
            "tests/a/test_a.py": "import tests.frontend_svc.help\n",
            "tests/frontend_svc/help.py": "import frontend_svc.server",
        },
        WORDS,
        False,
    ),
    "subject": ({"tests/e2e/test_page_browser.py": "run('signalbox')\n"}, PAGE, True),
    "subject of another": ({"tests/e2e/test_page_browser.py": "run('signalbox')\n"}, WORDS, False),
    "the test itself": ({"tests/a/test_a.py": ""}, "tests/a/test_a.py", True),
    "deleted": ({"tests/a/test_a.py": "import worker_svc.runner.gone\n"}, "worker_svc/runner/gone.py", True),
    "file named by its path": ({"tests/a/test_a.py": "open('docs/design.md')\n"}, "docs/design.md", True),
    "file named in parts": ({"tests/a/test_a.py": "ROOT / 'docs' / 'design.md'\n"}, "docs/design.md", True),
    "folder": ({"tests/a/test_a.py": "(ROOT / 'docs').glob('*')\n"}, "docs/design.md", True),
    "document": ({"tests/a/test_a.py": ""}, "docs/design.md", False),
    "document, for the house": ({"tests/test_a.py": ""}, "docs/design.md", True),
    "protos": (
        {"tests/a/test_a.py": "import worker_svc.runner.load\n"},
        "protos/signalbox/v1/worker.proto",
        True,
    ),
    "page": (
        {"tests/a/test_a.py": "import frontend_svc.api.page.page\n"},
        "frontend_svc/api/page/web/page.js",
        True,
    ),
    "kernel": (
        {"tests/a/test_a.py": "import worker_svc.runner.load\n"},
        "worker_svc/runner/native/kernel.cpp",
        True,
    ),
    "manifest": ({"tests/k8s/test_a.py": ""}, "k8s/base/pod.yaml", True),
    "manifest, elsewhere": ({"tests/a/test_a.py": ""}, "k8s/base/pod.yaml", False),
    "golden file": (
        {"tests/a/test_a.py": "", "tests/a/golden/1.json": ""},
        "tests/a/golden/1.json",
        True,
    ),
    "packaging": ({"tests/a/test_a.py": ""}, "pyproject.toml", True),
    "no rule": ({"tests/a/test_a.py": ""}, "strange/thing.bin", True),
}


@pytest.mark.parametrize(("files", "changed", "is_reached"), CASES.values(), ids=CASES)
def test_a_change_reaches(files: dict[str, str], changed: str, is_reached: bool) -> None:
    test = next(path for path in files if path.rpartition("/")[2].startswith("test_"))
    choice = choose(make_tree(PRODUCT | files), [changed])
    assert (test in choice.selected) == is_reached
    assert (test in choice.left_out) != is_reached


@pytest.fixture(scope="module")
def tree() -> Tree:
    return read_checkout(ROOT)


def test_a_smoke_test_of_each_kind_is_there() -> None:
    for name in SMOKE.values():
        file, _, function = name.partition("::")
        parsed = ast.parse((ROOT / file).read_text()).body
        assert function in {getattr(node, "name", "") for node in parsed}, name


def test_each_test_of_whole_services_says_what_it_is_about(tree: Tree) -> None:
    tests = Graph(tree).start_whole_services()
    assert [test for test in sorted(tests) if not is_always_run(test) and subjects_of(test) is None] == []


def test_each_row_is_about_something(tree: Tree) -> None:
    tests = Graph(tree).tests
    assert [pattern for pattern, _ in SUBJECTS if not any(fnmatch(test, pattern) for test in tests)] == []
    patterns = [pattern for pattern, _ in DATA] + [pattern for _, files in SUBJECTS for pattern in files]
    assert [pattern for pattern in patterns if not any(fnmatch(path, pattern) for path in tree.paths)] == []


def test_one_file_of_the_frontend_leaves_most_out(tree: Tree) -> None:
    choice = choose(tree, ["frontend_svc/text/stop_strings.py"])
    assert "tests/frontend_svc/text/test_stop_strings.py" in choice.selected
    assert "tests/scheduler_svc/blocks/test_block_pool.py" in choice.left_out
    assert set(choice.smoke) <= set(SMOKE.values())
    assert len(choice.selected) < len(choice.left_out)


def test_a_smoke_test_runs_where_its_file_is_left_out(tree: Tree) -> None:
    assert choose(tree, []).smoke == list(SMOKE.values())


class Repository:
    """A checkout with a product file, two tests, and this plugin."""

    def __init__(self, root: Path) -> None:
        self.root = root
        load = f"spec_from_file_location('selection', {str(ROOT / 'tests/selection.py')!r})"
        conftest = (
            "from importlib.util import module_from_spec, spec_from_file_location\n"
            f"spec = {load}\nselection = module_from_spec(spec)\nspec.loader.exec_module(selection)\n"
            "pytest_addoption, pytest_configure = selection.add_options, selection.register\n"
        )
        self.write("conftest.py", conftest)
        self.write("signalbox/one.py", "")
        self.write("tests/a/test_a.py", "NAME = 'signalbox.one'\ndef test_a(): pass\n")
        self.write("tests/b/test_b.py", "def test_b(): pass\n")
        self.write("pytest.ini", "[pytest]\ntestpaths = tests\npythonpath = .\n")
        self.write(".gitignore", ".pytest_cache\n__pycache__\n")
        git(root, "init", "-q", "-b", "main")
        self.commit("first")

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self, subject: str) -> None:
        git(self.root, "add", "-A")
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        git(self.root, *name, "commit", "-q", "--no-gpg-sign", "-m", subject)

    def push(self) -> None:
        """As if main had been pushed."""
        git(self.root, "update-ref", "refs/remotes/origin/main", "HEAD")

    def pytest(self, *arguments: str, **environment: str) -> str:
        variables = {name: value for name, value in os.environ.items() if name != "CI"}
        variables |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | environment
        command = [sys.executable, "-m", "pytest", "-v", "--import-mode=importlib", "--reach=", *arguments]
        done = subprocess.run(
            command, check=False, cwd=self.root, env=variables, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_the_first_run_is_of_everything_and_the_next_of_what_is_reached(repository: Repository) -> None:
    repository.push()
    first = repository.pytest()
    assert "no complete run is recorded" in first and "test_a PASSED" in first and "test_b PASSED" in first
    repository.write("signalbox/one.py", "x = 1\n")
    repository.commit("second")
    second = repository.pytest()
    assert "test_a PASSED" in second and "test_b" not in second.partition("selection")[0]
    assert "1 tests in 1 files" in second
    assert "test_b PASSED" in repository.pytest(CI="1")
    assert "test_b PASSED" in repository.pytest("tests/b")


def test_a_change_is_what_differs_from_the_merge_base(repository: Repository) -> None:
    root = repository.root
    with pytest.raises(NoBaseError, match="no origin/main"):
        read_change(root)
    repository.push()
    with pytest.raises(NoBaseError, match="no commit HEAD~1"):
        read_change(root)
    repository.write("signalbox/two.py", "")
    repository.commit("second")
    repository.write("signalbox/three.py", "")
    (root / "signalbox/one.py").unlink()
    paths = {"signalbox/one.py", "signalbox/two.py", "signalbox/three.py"}
    assert read_change(root).paths == paths
    repository.push()
    assert read_change(root).paths == paths, "against the commit before"
    assert read_change(root, "HEAD").paths == paths - {"signalbox/two.py"}


def test_without_git_there_is_no_change(tmp_path: Path) -> None:
    with pytest.raises(NoBaseError):
        read_change(tmp_path)


def test_past_fixes_are_judged_by_their_product_diff(repository: Repository) -> None:
    repository.write("signalbox/one.py", "x = 1\n")
    repository.write("tests/a/test_a.py", "NAME = 'signalbox.one'\ndef test_a2(): pass\n")
    repository.write("tests/b/test_b.py", "def test_b2(): pass\n")
    repository.commit("One is not lost")
    repository.write("signalbox/one.py", "x = 2\n")
    repository.commit("One is not lost, without a test")
    (verdict,) = judge(repository.root, 30)
    assert verdict.fix.subject == "One is not lost"
    assert verdict.fix.tests == ("tests/a/test_a.py", "tests/b/test_b.py")
    assert verdict.missed == ("tests/b/test_b.py",)
