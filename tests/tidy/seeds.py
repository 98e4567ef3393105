"""For each rule of tidy.py: trees that break it, and trees that look alike and do not."""

DOCUMENT = "<!-- source: examples/a.cpp#part -->\n```cpp\nint a;\n```\n"
EXAMPLE = "// docs: begin part\nint a;\n// docs: end part\n"
RECORD = "struct RecordHeader {\n  std::uint64_t magic;  //   0  text\n  Digest root;  //  8\n};\n"
ROWS = "| 0 | 8 | `magic` | x |\n| 8 | 32 | `root` | x |\n"
HOME = "/" + "home/someone"

# rule: (trees that must be found, trees that must pass)
SEEDS = {
    "rule_layers": (
        [{"lib/base/a.cpp": '#include "io/clock.hpp"\n'},
         {"lib/policy/a.cpp": '#include "move/mover.hpp"\n'},
         {"lib/cache/a.cpp": '#include "engine/model.hpp"\n'},
         {"lib/engine/a.cpp": '#include "index/record.hpp"\n'},
         {"lib/engine/tokenizer/a.cpp": '#include "serve/server.hpp"\n'},
         {"lib/tune/a.cpp": '#include "index/record.hpp"\n'},
         {"lib/serve/a.cpp": '#include "tier/nvme_reader.hpp"\n'},
         {"lib/tier/a.hpp": '#include "terrace/cache.hpp"\n'},
         {"examples/a.cpp": '#  include "base/assert.hpp"\n'},
         {"include/terrace/a.hpp": '#include "base/assert.hpp"\n'}],
        [{"lib/move/a.cpp": '#include "tier/tiers.hpp"\n#include "move/mover.hpp"\n#include <memory>\n'},
         {"lib/cache/a.cpp": '#include "terrace/cache.hpp"\n'},
         {"lib/tune/a.cpp": '#include "tier/nvme_reader.hpp"\n#include "tune/scan.hpp"\n'},
         {"lib/serve/a.cpp": '#include "engine/model.hpp"\n#include "terrace/terrace.hpp"\n'}],
    ),
    "rule_seams": (
        [{"lib/move/a.cpp": "#include <unistd.h>\n"}, {"include/terrace/a.hpp": "#include <cuda_runtime.h>\n"},
         {"lib/cache/a.cpp": "#include <sys/eventfd.h>\n"}],
        [{"lib/io/a.cpp": "#include <unistd.h>\n", "lib/engine/a.cpp": "#include <sys/mman.h>\n",
          "lib/move/a.cpp": "#include <span>\n"}],
    ),
    "rule_sizes": (
        [{"lib/io/a.cpp": "\n" * 601}, {"include/terrace/a.hpp": "\n" * 251}, {"examples/a.cpp": "\n" * 150}],
        [{"lib/io/a.cpp": "\n" * 600, "include/terrace/a.hpp": "\n" * 250, "examples/a.cpp": "\n" * 149}],
    ),
    "rule_tests_are_built": (
        [{"tests/unit/a_test.cpp": "", "tests/unit/CMakeLists.txt": "terrace_test(b SOURCES b_test.cpp)"},
         {"tests/unit/a_test.cpp": "", "tests/unit/CMakeLists.txt": "helper(${name}_test.cpp)\nhelper(b)"},
         {"tests/unit/a_test.cpp": ""}],
        [{"tests/unit/a_test.cpp": "", "tests/unit/CMakeLists.txt": "terrace_test(a SOURCES a_test.cpp)"},
         {"tests/unit/a_test.cpp": "", "tests/unit/CMakeLists.txt": "file(GLOB tests *_test.cpp)"},
         {"tests/unit/a_test.cpp": "", "tests/unit/CMakeLists.txt": "helper(${name}_test.cpp)\nhelper(a)"},
         {"tests/unit/deep/a_test.cpp": "", "tests/unit/CMakeLists.txt": "terrace_test(a SOURCES deep/a_test.cpp)"}],
    ),
    "rule_environment": (
        [{"lib/io/a.cpp": 'auto x = std::getenv("X");\n'}],
        [{"lib/io/a.cpp": "// never getenv\n", "tests/a.cpp": 'getenv("X");\n', "lib/serve/main.cpp": "getenv(x);\n"}],
    ),
    "rule_output": (
        [{"lib/cache/a.cpp": 'std::printf("x");\n'}, {"lib/cache/a.cpp": "std::cerr << x;\n"}],
        [{"lib/cache/a.cpp": 'std::snprintf(b, n, "printf");\n', "examples/a.cpp": 'std::printf("x");\n'}],
    ),
    "rule_device_synchronize": (
        [{"cuda/device/a.cu": "cudaDeviceSynchronize();\n"}],
        [{"tests/gpu/a.cu": "cudaDeviceSynchronize();\n", "cuda/device/a.cu": "cudaStreamSynchronize(s);\n"}],
    ),
    "rule_prefetch": (
        [{"lib/index/a.hpp": "void ahead(int* p) { __builtin_prefetch(p); }\n"}],
        [{"lib/base/prefetch.hpp": "__builtin_prefetch(memory);\n", "lib/index/a.hpp": "prefetch_line(p);\n"}],
    ),
    "rule_header_state": (
        [{"include/terrace/a.hpp": "static int count;\n"},
         {"include/terrace/a.hpp": "class A {\n public:\n  static std::atomic<int> live_;\n};\n"},
         {"include/terrace/a.hpp": "inline std::vector<int> all{};\n"},
         {"include/terrace/a.hpp": "#pragma once\nthread_local int last = 0;\n"}],
        [{"include/terrace/a.hpp": "class A {\n public:\n  static A open(int x);\n  static constexpr int k = 1;\n};\n"
                                   "inline constexpr int kMax = 3;\ninline int twice(int x) { return 2 * x; }\n"
                                   "inline namespace v1 { int f(); }\n"}],
    ),
    "rule_machine_paths": (
        [{"README.md": f"cd {HOME}/src\n"}, {"cmake/a.sh": f"x={HOME}\n"}],
        [{"a.sh": '"$work/build" build/home/x "${root}/work/a"\n'}],
    ),
    "rule_document_blocks": (
        [{"README.md": DOCUMENT.replace("int a", "int b"), "examples/a.cpp": EXAMPLE},
         {"README.md": DOCUMENT, "examples/a.cpp": EXAMPLE.replace("part", "other")},
         {"README.md": DOCUMENT},
         {"README.md": DOCUMENT.split("```")[0], "examples/a.cpp": EXAMPLE}],
        [{"README.md": DOCUMENT, "examples/a.cpp": EXAMPLE},
         {"README.md": "<!-- source: x.sh -->\n```sh\nls\n```\n", "x.sh": "ls\n"}],
    ),
    "rule_bytes_on_disk": (
        [{"lib/index/record.hpp": RECORD, "ARCHITECTURE.md": ROWS.replace("| 8 | 32", "| 9 | 32")},
         {"lib/index/record.hpp": RECORD, "ARCHITECTURE.md": ROWS + "| 40 | 4 | `more` | x |\n"}],
        [{"lib/index/record.hpp": RECORD, "ARCHITECTURE.md": ROWS}],
    ),
}


def run(rules):
    failures = []
    for rule in rules:
        found, passed = SEEDS.get(rule.__name__, ([], []))
        if not found or not passed:
            failures.append(f"{rule.__name__}: no seeds")
        failures += [f"{rule.__name__}: missed the violation in {tree}" for tree in found if not list(rule(tree))]
        failures += [f"{rule.__name__}: false alarm {list(rule(tree))}" for tree in passed if list(rule(tree))]
    print("\n".join(failures) or f"{len(rules)} rules find what was seeded for them, and nothing else")
    return 1 if failures else 0
