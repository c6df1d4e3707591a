"""System libraries as targets: `sys_cc_library`, and the check that their headers are installed."""

MULTIARCH = "x86_64-linux-gnu"

# Repository name -> (a header that the package installs, the Debian package).
_PACKAGES = {
    "abseil": ("absl/status/statusor.h", "libabsl-dev"),
    "crypto": ("openssl/sha.h", "libssl-dev"),
    "gtest": ("gmock/gmock.h", "libgtest-dev libgmock-dev"),
    "imgcodecs": ("opencv4/opencv2/imgcodecs.hpp", "libopencv-imgcodecs-dev"),
    "json": ("nlohmann/json.hpp", "nlohmann-json3-dev"),
    "jpeg": ("jpeglib.h", "libjpeg-dev"),
    "libcsv": ("csv.h", "libcsv-dev"),
    "libdeflate": ("libdeflate.h", "libdeflate-dev"),
    "liburing": ("liburing.h", "liburing-dev"),
    "libzip": ("zip.h", "libzip-dev"),
    "mpi": (MULTIARCH + "/mpi/mpi.h", "libopenmpi-dev openmpi-bin"),
    "onednn": ("oneapi/dnnl/dnnl.hpp", "libdnnl-dev"),
    "opencv": ("opencv4/opencv2/imgproc.hpp", "libopencv-imgproc-dev"),
    "opencv_dnn": ("opencv4/opencv2/dnn.hpp", "libopencv-dnn-dev"),
    "openjpeg": ("openjpeg-2.5/openjpeg.h", "libopenjp2-7-dev"),
    "png": ("png.h", "libpng-dev"),
    "protobuf": ("google/protobuf/message.h", "libprotobuf-dev protobuf-compiler"),
    "tiff": (MULTIARCH + "/tiffio.h", "libtiff-dev"),
    "utf8proc": ("utf8proc.h", "libutf8proc-dev"),
    "webp": ("webp/decode.h", "libwebp-dev"),
    "zlib": ("zlib.h", "zlib1g-dev"),
}

def _installed_header_impl(ctx):
    header = "/usr/include/" + ctx.attr.header
    if not ctx.path(header).exists:
        fail("%s is missing: apt-get install %s (or run tools/setup)" % (header, ctx.attr.package))
    ctx.file("BUILD", 'filegroup(name = "installed", visibility = ["//visibility:public"])\n')

_installed_header = repository_rule(
    implementation = _installed_header_impl,
    attrs = {
        "header": attr.string(mandatory = True),
        "package": attr.string(mandatory = True),
    },
    local = True,
)

def installed_headers():
    """Declares one repository @system_NAME a library; fetching it fails where the library is not installed."""
    for name, (header, package) in _PACKAGES.items():
        _installed_header(name = "system_" + name, header = header, package = package)

def _sys_cc_library_impl(ctx):
    own = CcInfo(
        compilation_context = cc_common.create_compilation_context(
            system_includes = depset(ctx.attr.includes),
            defines = depset(ctx.attr.defines),
        ),
        linking_context = cc_common.create_linking_context(
            linker_inputs = depset([cc_common.create_linker_input(
                owner = ctx.label,
                user_link_flags = depset(ctx.attr.linkopts),
            )]),
        ),
    )
    return [cc_common.merge_cc_infos(
        direct_cc_infos = [own],
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    )]

sys_cc_library = rule(
    doc = "A library of the system: include folders (as -isystem), defines and link flags, no files.",
    implementation = _sys_cc_library_impl,
    attrs = {
        "defines": attr.string_list(),
        "deps": attr.label_list(providers = [CcInfo]),
        "includes": attr.string_list(doc = "Absolute folders; /usr/include itself needs no mention."),
        "installed": attr.label(doc = "The @system_NAME//:installed that checks for its headers."),
        "linkopts": attr.string_list(),
    },
    provides = [CcInfo],
)
