"""`proto_cc_library`: C++ from .proto files by the system's protoc, which needs no rules fetched."""

load("//third_party:cc.bzl", "cc_library")

def _srcs_of(dep):
    return (dep if ":" in dep else dep + ":" + dep.split("/")[-1]) + "_srcs"

def proto_cc_library(name, srcs, deps = [], visibility = None):
    """A cc_library of the messages in `srcs`.

    Imports and the generated headers' paths are from the project root:
    `import "models/schema/net.proto"` and `#include "models/schema/net.pb.h"`.

    Args:
      name: the library; its .proto files, for dependants' imports, are `NAME_srcs`.
      srcs: .proto files of this package.
      deps: other proto_cc_library targets whose files `srcs` import.
      visibility: as everywhere.
    """
    stems = [src[:-len(".proto")] for src in srcs]
    imports = [_srcs_of(dep) for dep in deps]
    native.filegroup(
        name = name + "_srcs",
        srcs = srcs + imports,
        visibility = visibility,
    )
    native.genrule(
        name = name + "_gen",
        srcs = srcs + imports,
        outs = [stem + ".pb.h" for stem in stems] + [stem + ".pb.cc" for stem in stems],
        cmd = "protoc -I. --cpp_out=$(BINDIR) " +
              " ".join(["$(location %s)" % src for src in srcs]),
        message = "Generating C++ from %s" % ", ".join(srcs),
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [stem + ".pb.cc" for stem in stems],
        hdrs = [stem + ".pb.h" for stem in stems],
        copts = ["-w"],
        visibility = visibility,
        deps = deps + ["//third_party:protobuf"],
    )
