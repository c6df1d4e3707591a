"""What needs CUDA to build, as targets that do not exist without it."""

load("//third_party:cc.bzl", "cc_binary")
load("//tests:gyre_test.bzl", "gyre_test")
load("//third_party:cuda.bzl", "device_cc_library", "if_cuda")

def cuda_test_library(name, srcs = [], **kwargs):
    """A testonly device_cc_library without kernels, all of it linked."""
    if if_cuda([True]):
        device_cc_library(name = name, srcs = srcs, alwayslink = True, kernels = False, testonly = True, **kwargs)

def cuda_test(name, srcs, deps = [], **kwargs):
    """A gyre_test whose sources see CUDA's headers; a GPU is not needed."""
    if if_cuda([True]):
        cuda_test_library(name = name + "_library", srcs = srcs, deps = deps + ["//third_party:gtest"])
        gyre_test(name = name, srcs = [], deps = [name + "_library"], **kwargs)

def stub_library(name, src = "stub_library.cc", **kwargs):
    """The source as the shared object NAME."""
    if if_cuda([True]):
        cc_binary(
            name = name,
            testonly = True,
            srcs = [src],
            linkshared = True,
            **kwargs
        )
