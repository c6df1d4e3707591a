"""`room_tests`: the tests of a room.

`gyre_test`: one, a GoogleTest binary, run alone or, for `ranks`, under mpirun; `device_test`: of any device.
"""

load("//third_party:cc.bzl", "cc_binary", "cc_library", "cc_test")

# g++ 12 takes std::regex for uninitialised once a sanitizer is on.
_COPTS = ["-Wno-maybe-uninitialized"]
# Tags of a test that gains nothing from a sanitizer; why stands beside them.
UNSANITIZED = ["noasan", "notsan"]
# Tag of a test that takes minutes to say at random what a shorter one says by rows: `tools/test --attack`.
ATTACK = ["attack"]
_DEPS = ["//tests:main"]

def gyre_test(name, srcs, deps = [], ranks = None, size = "small", data = [], args = [], **kwargs):
    """Declares a test.

    Args:
      name: the test; with ranks the test suite of NAME_1, NAME_2, ..., one a rank count.
      srcs: sources, without a main.
      deps: libraries; GoogleTest and the main come by themselves.
      ranks: None, or rank counts such as [1, 2, 3]: each runs the same binary under mpirun. The
        test calls MPI_Init_thread and MPI_Finalize itself.
      size: Bazel's size; an mpirun that outlives it is killed with all its ranks.
      data: files that the test reads.
      args: arguments after GoogleTest's own.
      **kwargs: any other attribute of a Bazel test, such as tags.
    """
    if not ranks:
        cc_test(
            name = name,
            size = size,
            srcs = srcs,
            copts = _COPTS,
            args = args,
            data = data,
            deps = deps + _DEPS,
            **kwargs
        )
        return

    binary = name + "_binary"
    cc_binary(
        name = binary,
        testonly = True,
        srcs = srcs,
        copts = _COPTS,
        deps = deps + _DEPS,
    )
    for count in ranks:
        native.sh_test(
            name = "%s_%d" % (name, count),
            size = size,
            srcs = ["//tests:mpirun_test.sh"],
            args = [str(count), "$(location :%s)" % binary] + args,
            data = data + [":" + binary],
            **kwargs
        )
    native.test_suite(
        name = name,
        tests = [":%s_%d" % (name, count) for count in ranks],
    )

def device_test(name, srcs, deps = [], **kwargs):
    """A gyre_test that knows GYRE_TEST_DEVICE, whose tests //tests/any_device:device_tests has, too.

    Args:
      name: the test; its tests are the library NAME_cases.
      srcs: sources, without a main.
      deps: libraries; GoogleTest and the main come by themselves.
      **kwargs: as gyre_test's.
    """
    cc_library(
        name = name + "_cases",
        testonly = True,
        srcs = srcs,
        copts = _COPTS,
        visibility = ["//tests/any_device:__pkg__"],
        deps = deps,
        alwayslink = True,
    )
    gyre_test(name = name, srcs = [], deps = [":%s_cases" % name], **kwargs)

def room_tests(deps = [], but = {}, exclude = [], device_tests = [], kind = gyre_test, **kwargs):
    """Declares the test X_test for each X_test.cc of the room.

    Args:
      deps: libraries of every test.
      but: test -> its own attributes.  `srcs` and `deps` are added to the room's, others win over them.
      exclude: names of tests that are declared elsewhere.
      device_tests: names of tests that are a device_test.
      kind: what the others are, if no gyre_test.
      **kwargs: attributes of every test.
    """
    names = [source[:-len(".cc")] for source in native.glob(["*_test.cc"])]
    unknown = [name for name in list(but) + exclude if name not in names]
    if unknown:
        fail("missing tests: %s" % ", ".join(unknown))
    for name in names:
        if name in exclude:
            continue
        own = dict(kwargs)
        own.update(but.get(name, {}))
        srcs = [name + ".cc"] + own.pop("srcs", [])
        libraries = deps + own.pop("deps", [])
        (device_test if name in device_tests else kind)(name = name, srcs = srcs, deps = libraries, **own)
