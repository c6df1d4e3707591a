"""`cc_library`, `cc_binary` and `cc_test` whose sources read precompiled headers (//third_party/precompiled).

The libraries of these headers come with them: Abseil, and in tests GoogleTest.
What is tested is the engine: a test of its own is compiled the quick way, for it is compiled far
more often than it is run.
"""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")

# -O1 takes two thirds of -O2's time.
TEST_COPTS = select({
    "//third_party/precompiled:under_sanitizer": ["-O0", "-fno-sanitize=undefined"],
    "//conditions:default": ["-O1"],
})

def _precompiled(rule, copts = [], deps = [], **kwargs):
    tests = native.package_name().split("/")[0] == "tests"
    header = "tests" if tests else "common"
    rule(
        copts = ["-include", "third_party/precompiled/%s.h" % header] + copts + (TEST_COPTS if tests else []),
        deps = deps + ["//third_party/precompiled:" + header],
        **kwargs
    )

def cc_library(**kwargs):
    _precompiled(_cc_library, **kwargs)

def cc_binary(**kwargs):
    _precompiled(_cc_binary, **kwargs)

def cc_test(**kwargs):
    _precompiled(_cc_test, **kwargs)
