"""`device_cc_library`: C++ that runs on CPUs and, where the CUDA toolkit is, on GPUs.

The same .cc is compiled by g++ in a CPU-only build and by nvcc alone in a CUDA build: both objects
in one program would define the same symbols twice.

A device_cc_library without kernels is for what calls CUDA and exists in CUDA builds alone: g++
compiles it, with CUDA's headers, in a tenth of nvcc's time.

In a CUDA build nvcc's sources see GYRE_WITH_CUDA, and those of a plain cc_library that says
`local_defines = CUDA_DEFINES`. It is not handed on to dependants, so headers must not look at it,
and switching WITH_CUDA recompiles only the files that differ.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("@local_config_cuda//:config.bzl", "CUDA_HOME")
load("//third_party:cc.bzl", "cc_library")
load("//third_party:system_library.bzl", "sys_cc_library")

CUDA_DEFINES = ["GYRE_WITH_CUDA=1"] if CUDA_HOME else []

# Oldest first.  Machine code for all is made of the oldest one's PTX, which serves newer GPUs, too:
# the kernels use nothing newer, and to make PTX twice takes nvcc a third longer.
_ARCHITECTURES = ["80", "90"]

def _nvcc_architecture_flags():
    oldest = _ARCHITECTURES[0]
    codes = ["sm_" + x for x in _ARCHITECTURES] + ["compute_" + oldest]
    return ["-gencode=arch=compute_%s,code=[%s]" % (oldest, ",".join(codes))]

_KERNEL_FLAGS = [
    # Of nvcc, ptxas and the host compiler.
    "-Werror=all-warnings",
    # Takes any assignment to an absl::Status for a result that is ignored; g++ knows better.
    "-diag-suppress=2810",
    # A test looks for each kernel's name in the program.
    "--no-compress",
]

def _host_flags(ctx):
    """What g++ would get on the command line, as nvcc wants it: -Xcompiler splits at commas, hence one by one."""
    flags = []
    for flag in ["-fPIC"] + ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts:
        if "," in flag:
            fail("nvcc cannot pass the compiler flag %s on: it has a comma" % flag)
        flags += ["-Xcompiler", flag]
    return flags

def _nvcc_library_impl(ctx):
    cc_toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    context = deps.compilation_context

    objects = []
    for source in ctx.files.srcs:
        if source.extension != "cc":
            continue
        object = ctx.actions.declare_file("_nvcc/%s/%s.o" % (ctx.label.name, source.basename))
        args = ctx.actions.args()
        args.add_all(["-x", "cu" if ctx.attr.kernels else "c++"])
        args.add_all(["-std=c++20", "-ccbin", cc_toolchain.compiler_executable])
        if ctx.attr.kernels:
            args.add_all(_nvcc_architecture_flags())
            args.add_all(_KERNEL_FLAGS)
            if not ctx.attr.contracts:
                args.add("-fmad=false")
        else:
            args.add_all(["-isystem", CUDA_HOME + "/include"])
        args.add_all(["-O2", "-DNDEBUG"])
        args.add_all(_host_flags(ctx))
        args.add_all(CUDA_DEFINES, before_each = "-D")
        args.add_all(context.defines, before_each = "-D")
        args.add_all(["-I", ".", "-I", ctx.bin_dir.path])
        args.add_all(depset(transitive = [context.quote_includes, context.includes]), before_each = "-I")
        args.add_all(context.system_includes, before_each = "-isystem")

        # In the temporary folder names begin with the process's number, which is 2 in every sandbox:
        # two that start at once have the same, and who ends first takes the other's away.
        args.add("--objdir-as-tempdir")
        args.add_all(["-c", source, "-o", object])
        ctx.actions.run(
            executable = CUDA_HOME + "/bin/nvcc",
            arguments = [args],
            inputs = depset(ctx.files.srcs + ctx.files.hdrs, transitive = [context.headers, cc_toolchain.all_files]),
            outputs = [object],
            mnemonic = "NvccCompile",
            progress_message = "Compiling %s with nvcc" % source.short_path,
            use_default_shell_env = True,
        )
        objects.append(object)

    linking, _ = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        alwayslink = ctx.attr.alwayslink,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        disallow_dynamic_library = True,
        feature_configuration = features,
        linking_contexts = [deps.linking_context],
        name = ctx.label.name,
    )
    own = CcInfo(
        compilation_context = cc_common.create_compilation_context(headers = depset(ctx.files.hdrs)),
        linking_context = linking,
    )
    headers_of_deps = CcInfo(compilation_context = context)
    return [
        DefaultInfo(files = depset(objects)),
        cc_common.merge_cc_infos(direct_cc_infos = [own], cc_infos = [headers_of_deps]),
    ]

_nvcc_library = rule(
    implementation = _nvcc_library_impl,
    attrs = {
        "alwayslink": attr.bool(),
        "contracts": attr.bool(),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "kernels": attr.bool(),
        "srcs": attr.label_list(allow_files = [".cc", ".h"]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    incompatible_use_toolchain_transition = True,
    provides = [CcInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def device_cc_library(name, srcs, hdrs = [], deps = [], kernels = True, contracts = True, **kwargs):
    """A cc_library whose sources nvcc compiles where CUDA is on.

    Args:
      name: the library.
      srcs: .cc and private .h files.
      hdrs: public headers.
      deps: libraries; //third_party:cuda, the CUDA run time, comes by itself.
      kernels: whether a source defines or launches kernels.
      contracts: whether kernels may make a product and a sum one operation, which rounds once. nvcc
        chooses anew in each kernel, so that a formula has other bits in another loop. Without it
        sums of products take up to twice as many instructions.
      **kwargs: alwayslink, testonly, tags and visibility.
    """
    library = cc_library
    if CUDA_HOME:
        library = _nvcc_library
        kwargs["kernels"] = kernels
        kwargs["contracts"] = contracts
    library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        deps = deps + ["//third_party:cuda"],
        **kwargs
    )

def if_cuda(with_cuda, without_cuda = []):
    """The first argument in a build with CUDA, else the second: for `srcs` and `deps`."""
    return with_cuda if CUDA_HOME else without_cuda

def cuda_library(name, **kwargs):
    """The CUDA run time, linked statically; empty without CUDA.

    cuBLAS, cuDNN and NCCL are not linked: a program that links them does not start where they are
    missing. The include folder is for nvcc alone, which knows it.
    """
    sys_cc_library(
        name = name,
        linkopts = if_cuda(["%s/lib64/libcudart_static.a" % CUDA_HOME, "-ldl", "-lrt", "-pthread"]),
        **kwargs
    )
