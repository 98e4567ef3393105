#!/usr/bin/env python3
"""README.md of this folder names a test for each report, and every test it names exists.

    check_table.py TESTS     TESTS is the folder of all tests; prints what is wrong, exits 1 where anything is
    check_table.py self-test TESTS
                             damaged copies of the table are found out
"""
import pathlib
import re
import sys

FIRST, LAST = 16, 69
KINDS = {"LIFETIME", "LEAK", "CAPACITY", "IO-PARTIAL", "IO-ENV", "CRASH-CONSISTENCY", "INDEX-DB", "CONCURRENT-PROCESS",
         "FAILURE-REPORTING"}


def exists(source, name):
    """Whether `source` defines the test that GoogleTest calls `name`: Suite.Test, or Instance/Suite.Test."""
    instance, _, rest = name.rpartition("/")
    suite, _, test = rest.partition(".")
    macro = "TEST_P" if instance else "TEST(?:_F)?"
    if not re.search(rf"^{macro}\({suite}, {test}\)", source, re.M):
        return False
    return not instance or bool(re.search(rf"INSTANTIATE_TEST_SUITE_P\(\s*{instance},\s*{suite}\b", source))


def named(cell):
    """(file, test) for each test in a cell: a file stands before its tests, both as code."""
    file = None
    for word in re.findall(r"`([^`]+)`", cell):
        if word.endswith(".cpp"):
            file = word
        else:
            yield file, word


def faults_of_row(number, kind, cell, tests):
    if kind not in KINDS:
        yield f"{number}: no kind {kind}"
    closing, _, _ = cell.partition("open:")
    if not any("DISABLED_" not in test for _, test in named(closing)) and "not applicable, because" not in cell:
        yield f"{number}: neither a test that runs nor a reason"
    for file, test in named(cell):
        path = tests / (file or "")
        if not path.is_file() or not exists(path.read_text(), test):
            yield f"{number}: {file} has no test {test}"
    if "DISABLED_" in closing:
        yield f"{number}: a disabled test closes nothing; name it after 'open:'"


def faults(table, tests):
    numbers = []
    for row in re.finditer(r"^\| \[O(\d+)\]\(https://\S+\) \| ([A-Z-]+) \| [^|]+ \| ([^|]+) \|$", table, re.M):
        numbers.append(int(row.group(1)))
        yield from faults_of_row(f"O{row.group(1)}", row.group(2), row.group(3), tests)
    if numbers != list(range(FIRST, LAST + 1)):
        yield f"rows are not O{FIRST:03} to O{LAST:03}, each once: {numbers}"


def self_test(table, tests):
    row = table[table.index("| [O030]"):].split("\n")[0]
    damaged = {
        "a missing row": table.replace(row + "\n", ""),
        "a row twice": table.replace(row, row + "\n" + row),
        "an unknown kind": table.replace("| IO-PARTIAL |", "| IO-PARTY |", 1),
        "a test that is gone": table.replace("IoPartial.AWriteThatIsCutShort", "IoPartial.AWriteThatWas"),
        "another instance": table.replace("Devices/IoPartial.AWriteThatIsCut", "Others/IoPartial.AWriteThatIsCut"),
        "a file that is gone": table.replace("`fault/io_partial_test.cpp`", "`fault/io_part_test.cpp`"),
        "no test": table.replace(row, re.sub(r"\| [^|]+ \|$", "| see elsewhere |", row)),
        "a disabled one": table.replace("IoPartial.AWriteThatIsCut", "IoPartial.DISABLED_AWriteThatIsCut"),
    }
    for what, text in damaged.items():
        if text == table or not list(faults(text, tests)):
            yield f"the check does not see {what}"


def main(arguments):
    tests = pathlib.Path(arguments[-1])
    check = self_test if arguments[0] == "self-test" else faults
    found = list(check((tests / "fault/README.md").read_text(), tests))
    print("\n".join(found) or "every report has its test")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
