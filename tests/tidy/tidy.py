#!/usr/bin/env python3
"""The project's own rules, as a test: layers, sizes, words, documents. A rule that can be a test is a test.

    tidy.py check ROOT       every rule over the tree; prints each violation, exits 1 where there is one
    tidy.py self-test        every rule finds the violation seeded for it, and passes the clean twin
    tidy.py format ROOT      clang-format would change nothing; exits 77 where it is not installed
    tidy.py output DOCUMENT NAME -- COMMAND...
                             the block of DOCUMENT after `<!-- output: NAME -->` is what COMMAND prints
    tidy.py fill-source ROOT, tidy.py fill-output DOCUMENT NAME -- COMMAND...
                             make it so (make docs)
"""
import fnmatch
import pathlib
import re
import shutil
import subprocess
import sys

CODE = (".cpp", ".hpp", ".h", ".cu", ".cuh")
LAYERS = ["base", "io", "memory", "index", "tier", "policy", "move", "cache"]
# Users of the library see its public headers, and of each other what stands here.
USERS = {"lib/engine": ["engine"], "lib/serve": ["serve", "engine"], "lib/tune": ["tune"], "examples": []}
# What a user may see beside them: the reader of a cache directory that no cache has open.
USERS_EXCEPTIONS = {("lib/tune", "tier/nvme_reader.hpp")}
FACADE = ("terrace/cache.hpp", "terrace/terrace.hpp")  # the mover implements some of its values
# cuda.hpp is the one header that includes CUDA; the index must know a fork.
MAY_CALL_THE_SYSTEM = ("lib/io/", "lib/tier/nvme_", "lib/index/rocks_slot_index.cpp", "include/terrace/cuda.hpp")
TESTS = ("tests/", "benchmarks/")
# Programs may print; so may what ends the process, for want of anybody to return an error to.
MAINS = ("lib/serve/main.cpp", "lib/serve/demo/main.cpp", "lib/tune/main.cpp")
MAY_PRINT = TESTS + MAINS + ("examples/", "lib/base/assert.cpp", "lib/base/result.cpp")
MAY_READ_ENVIRONMENT = TESTS + MAINS + ("lib/serve/options.cpp",)


def code_files(tree, *roots):
    return [(path, text) for path, text in sorted(tree.items())
            if path.endswith(CODE) and path.startswith(roots or ("",))]


def without_comments(text):
    """Comments and string literals blanked, line numbers kept."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def includes(text):
    return [(line_of(text, match.start()), match.group(1))
            for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', text, re.M)]


def forbidden_include(path, target):
    """Why `path` may not include `target`, or None."""
    folder = target.split("/")[0]
    ours = folder in LAYERS + ["engine", "serve", "tune"]
    own = re.match(r"lib/(\w+)/", path)
    if path.startswith("include/"):
        return "a public header includes public and standard headers only" if ours else None
    for user, may in USERS.items():
        if path.startswith(user + "/"):
            allowed = not ours or folder in may or (user, target) in USERS_EXCEPTIONS
            return None if allowed else f"{user} uses the public headers only"
    if not own or own.group(1) not in LAYERS:
        return None
    layer = own.group(1)
    if ours and (folder not in LAYERS or LAYERS.index(folder) > LAYERS.index(layer)):
        return f"layer {layer} may not include layer {folder}: includes point downwards"
    if target in FACADE and layer not in ("move", "cache"):
        return f"layer {layer} may not include the facade"
    return None


def rule_layers(tree):
    """Includes point downwards; users see public headers only."""
    for path, text in code_files(tree, "include/", "lib/", "examples/"):
        for line, target in includes(text):
            reason = forbidden_include(path, target)
            if reason:
                yield f"{path}:{line}: {target}: {reason}"


def rule_seams(tree):
    """Only the seams talk to the kernel and the driver; the owner of the cache directory locks it, and no more."""
    system = r'^[ \t]*#[ \t]*include[ \t]+<((?:sys/|linux/|netinet/|cuda|unistd|fcntl|poll|liburing|dirent)[^>]*)>'
    for path, text in code_files(tree, "include/", *(f"lib/{layer}/" for layer in LAYERS)):
        if not path.startswith(MAY_CALL_THE_SYSTEM):
            for match in re.finditer(system, text, re.M):
                yield f"{path}:{line_of(text, match.start())}: <{match.group(1)}> belongs to the seams (lib/io, cuda)"


def size_limit(path):
    if path.startswith("examples/"):
        return 149
    if path.startswith("include/"):
        return 250
    return 600


def rule_sizes(tree):
    """Sources up to 600 lines, public headers up to 250, examples below 150."""
    for path, text in code_files(tree):
        if text.count("\n") > size_limit(path):
            yield f"{path}:1: {text.count(chr(10))} lines, at most {size_limit(path)}: split it"


def names_source(cmake, source):
    """Whether a CMakeLists.txt names `source`, matches it by a glob, or makes its name from a word that stands in it."""
    for word in re.findall(r"[\w/*.${}-]+\.cpp", cmake):
        made = re.fullmatch(re.sub(r"\\\$\\\{\w+\\\}", r"(\\w+)", re.escape(word)), source)
        if fnmatch.fnmatch(source, word) or made and re.search(rf"\b{made.group(1)}\b", cmake):
            return True
    return False


def rule_tests_are_built(tree):
    """Every *_test.cpp is named in the CMakeLists.txt of its folder or one above."""
    for path in tree:
        folders = [str(parent) for parent in pathlib.PurePosixPath(path).parents if str(parent) != "."]
        if path.endswith("_test.cpp") and not any(
                names_source(tree.get(f"{folder}/CMakeLists.txt", ""), path[len(folder) + 1:]) for folder in folders):
            yield f"{path}:1: in no CMakeLists.txt, so it never runs"


def banned(tree, pattern, allowed, why):
    for path, text in code_files(tree):
        if not path.startswith(allowed):
            for match in re.finditer(pattern, without_comments(text)):
                yield f"{path}:{line_of(text, match.start())}: {match.group().strip()}: {why}"


def rule_environment(tree):
    """No environment variables outside mains and tests."""
    return banned(tree, r"\b(secure_)?getenv\b", MAY_READ_ENVIRONMENT, "options come through the options struct")


def rule_output(tree):
    """No output but through the log hook."""
    return banned(tree, r"\b(std::(cout|cerr|clog|print)|f?printf|f?puts|perror|putchar|fmt::print)\b", MAY_PRINT,
                  "report through Options::log or a returned error")


def rule_device_synchronize(tree):
    """Nothing waits for the whole device."""
    return banned(tree, r"\bcudaDeviceSynchronize\b", ("tests/",), "wait for an event of one stream")


def rule_prefetch(tree):
    """Compilers leave out calls of functions that only prefetch."""
    return banned(tree, r"\b(__builtin_prefetch|_mm_prefetch)\b", ("lib/base/prefetch.hpp",), "call prefetch_line()")


def rule_header_state(tree):
    """Public headers hold no mutable state."""
    for path, text in code_files(tree, "include/"):
        for match in re.finditer(r"[^;{}]+", without_comments(text)):
            statement = re.sub(r"^[ \t]*#.*$|\b(public|private|protected)[ \t]*:", "", match.group(), flags=re.M)
            statement = re.sub(r"<[^<>]*>", "", statement).strip()
            if (re.match(r"(static|inline|thread_local|extern)\b", statement)
                    and not re.search(r"\(|\b(constexpr|const|namespace)\b", statement)):
                line = line_of(text, match.end() - len(match.group().lstrip()))
                yield f"{path}:{line}: {statement.split(chr(10))[0]}: mutable state in a public header"


def rule_machine_paths(tree):
    """No path of a developer's machine in the project."""
    for path, text in tree.items():
        for match in re.finditer(r"(?<![\w$.}~-])/(?:work|home|root|Users)/[\w.]+", text):
            yield f"{path}:{line_of(text, match.start())}: {match.group()}: a path of one machine"


def section(text, name):
    """The lines between `// docs: begin NAME` and `// docs: end NAME`; the whole text where no name is given."""
    if not name:
        return text
    match = re.search(rf"^[^\n]*docs: begin {re.escape(name)}\n(.*?)^[^\n]*docs: end {re.escape(name)}$", text,
                      re.M | re.S)
    return match.group(1) if match else None


SOURCE_BLOCK = re.compile(r"(<!-- source: (\S+?)(?:#(\S+))? -->\n)(?:(```\w*\n)(.*?)^```$)?", re.M | re.S)


def rule_document_blocks(tree):
    """A block after `<!-- source: FILE[#SECTION] -->` is that file, or that section of it."""
    for path, text in tree.items():
        if not path.endswith(".md"):
            continue
        for match in SOURCE_BLOCK.finditer(text):
            _, source, name, _, block = match.groups()
            expected = section(tree.get(source, ""), name)
            if not expected or block != expected:
                yield f"{path}:{line_of(text, match.start())}: differs from {source}{'#' + name if name else ''}"


def rule_bytes_on_disk(tree):
    """ARCHITECTURE.md's table of the record header has the fields and offsets of lib/index/record.hpp."""
    header = re.search(r"struct RecordHeader \{(.*?)\n\};", tree.get("lib/index/record.hpp", ""), re.S)
    fields = re.findall(r"^\s+[\w:]+ (\w+)(?:\[\d+\])?;\s*// +(\d+)", header.group(1), re.M) if header else []
    rows = re.findall(r"^\| +(\d+) +\|[^|]*\| +`(\w+)`", tree.get("ARCHITECTURE.md", ""), re.M)
    documented = [(name, offset) for offset, name in rows]
    for field in fields:
        if field not in documented:
            yield f"ARCHITECTURE.md:1: bytes on disk: no row for `{field[0]}` at offset {field[1]}"
    for row in documented:
        if row not in fields:
            yield f"ARCHITECTURE.md:1: bytes on disk: `{row[0]}` at {row[1]} is not in lib/index/record.hpp"


RULES = [rule for name, rule in list(globals().items()) if name.startswith("rule_")]


def load(root):
    root = pathlib.Path(root)
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:  # an unpacked archive
        names = [str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()]
    tree = {}
    for name in names:
        path = root / name
        if not name.startswith(("build/", ".git/", ".cache/")) and path.is_file():
            try:
                tree[name] = path.read_text()
            except UnicodeDecodeError:
                pass  # no text, no rules
    return tree


def check(root):
    tree = load(root)
    violations = [violation for rule in RULES for violation in rule(tree)]
    print("\n".join(violations) or f"{len(tree)} files, {len(RULES)} rules: clean")
    return 1 if violations or not tree else 0


def clang_format(root):
    if not shutil.which("clang-format"):
        print("SKIPPED: clang-format is not installed")
        return 77
    files = [path for path, _ in code_files(load(root))]
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", *files], cwd=root, capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error", result.stderr, re.M)))
    print("\n".join(f"{path}: not formatted (make format)" for path in wrong) or f"{len(files)} files: formatted")
    return 1 if result.returncode else 0


def fill_source(root):
    tree = load(root)
    for path in [path for path in tree if path.endswith(".md")]:
        filled = SOURCE_BLOCK.sub(lambda match: f"{match.group(1)}{match.group(4)}"
                                                f"{section(tree[match.group(2)], match.group(3))}```", tree[path])
        (pathlib.Path(root) / path).write_text(filled)
    return 0


def output(document, name, command, fill):
    path = pathlib.Path(document)
    text = path.read_text()
    match = re.search(rf"<!-- output: {re.escape(name)} -->\n```\w*\n(.*?)^```$", text, re.M | re.S)
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    if match and fill:
        path.write_text(text[:match.start(1)] + printed + text[match.end(1):])
        return 0
    if match and match.group(1) == printed:
        return 0
    print(f"{document}: the block after `<!-- output: {name} -->` is not what {command[0]} prints (make docs):\n{printed}")
    return 1


def main(arguments):
    match arguments:
        case ["check", root]:
            return check(root)
        case ["format", root]:
            return clang_format(root)
        case ["self-test"]:
            import seeds  # kept apart: violations on purpose
            return seeds.run(RULES)
        case ["output", document, name, "--", *command]:
            return output(document, name, command, fill=False)
        case ["fill-output", document, name, "--", *command]:
            return output(document, name, command, fill=True)
        case ["fill-source", root]:
            return fill_source(root)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
