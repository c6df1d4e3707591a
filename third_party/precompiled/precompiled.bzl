"""`precompiled_header`: g++'s image of headers that almost every file reads.

Reading the standard library's and Abseil's headers is half of what a small file takes to compile.
"""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    sources = [ctx.file.src] + ctx.files.hdrs

    # g++ looks for NAME.h.gch beside the NAME.h that is asked for.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    image = ctx.actions.declare_file(header.basename + ".gch", sibling = header)
    fragment = ctx.fragments.cpp
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = image.path,
        quote_include_directories = depset(["."]),
        user_compile_flags = fragment.copts + fragment.cxxopts + ctx.attr.copts,
        use_pic = True,
    )
    ctx.actions.run(
        executable = toolchain.compiler_executable,
        arguments = ["-x", "c++-header"] + cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = "c++-compile",
            variables = variables,
        ),
        inputs = depset([header] + sources, transitive = [toolchain.all_files]),
        outputs = [image],
        mnemonic = "PrecompileHeader",
        progress_message = "Precompiling %s" % header.short_path,
        use_default_shell_env = True,
    )
    own = CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([header, image] + sources),
    ))
    return [
        DefaultInfo(files = depset([image])),
        cc_common.merge_cc_infos(
            direct_cc_infos = [own],
            cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
        ),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "copts": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),  # the libraries of the headers
        "hdrs": attr.label_list(allow_files = [".h"]),  # that src includes
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    incompatible_use_toolchain_transition = True,
    provides = [CcInfo],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
