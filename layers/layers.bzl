"""The catalogue of layers, and what is generated from it: a library a family, and the factory.

tests/layers/BUILD makes a test a family.  The factory is made from the tests' sources too, so that
nothing links without them.
"""

load("//third_party:cuda.bzl", "device_cc_library")

# A family is FAMILY.cc and tests/layers/FAMILY_test.cc.  Its layers are members of LayerConfig.type in
# models/schema/layer.proto; for each, NAME, the source defines `CreateName(const NameConfig&)`.
FAMILIES = {
    "accuracy": ["accuracy"],
    "activation": ["sigmoid", "tanh", "gelu", "silu"],
    "attention": ["attention"],
    "axes": ["concat", "slice", "split"],
    "batch_norm": ["batch_norm"],
    "binary_loss": ["binary_cross_entropy", "binary_hinge", "max_hinge"],
    "combine": ["add", "multiply"],
    "conv2d": ["conv2d", "conv1d"],
    "dense": ["dense"],
    "dropout": ["dropout"],
    "embedding": ["embedding", "positional_embedding"],
    "hinge": ["hinge"],
    "layer_norm": ["layer_norm"],
    "lrn": ["lrn"],
    "mean_over_elements": ["mean_squared_error", "sigmoid_cross_entropy", "time_to_event"],
    "noise": ["noise"],
    "pool2d": ["pool2d", "pool1d"],
    "records": ["roc_auc", "alarm", "record"],
    "recurrent": ["lstm", "gru", "rnn"],
    "relu": ["relu"],
    "reshape": ["flatten", "reshape", "transpose"],
    "softmax": ["softmax"],
    "softmax_cross_entropy": ["softmax_cross_entropy"],
}

_LAYERS = [layer for layers in FAMILIES.values() for layer in layers]

_DEPS = [
    "//engine/runtime",
    "//engine/runtime/parallel",
    "//engine/runtime/primitives",
    "//layers/attention",
    "//layers/common",
    "//layers/common:global_mean",
    "//layers/interface",
    "//layers/recurrent",
    "//models/schema:layer_proto",
]

def _camel_case(name, after_digits):
    """CamelCase of a snake_case name; protoc's enumerators have a capital after digits as well."""
    result = ""
    capital = True
    for character in name.elems():
        if character == "_":
            capital = True
            continue
        result += character.upper() if capital else character
        capital = after_digits and character.isdigit()
    return result

def _factory_source():
    # No default: -Werror=switch finds a member of LayerConfig.type that the catalogue lacks.
    lines = [
        "// Generated from layers/layers.bzl.",
        "#include \"layers/factory.h\"",
        "",
        "namespace gyre {",
    ]
    for name in _LAYERS:
        camel = _camel_case(name, after_digits = False)
        lines.append("absl::StatusOr<std::unique_ptr<Layer>> Create%s(const %sConfig& config);" % (camel, camel))
    lines += [
        "",
        "absl::StatusOr<std::unique_ptr<Layer>> CreateLayer(const LayerConfig& config) {",
        "  switch (config.type_case()) {",
    ]
    for name in _LAYERS:
        lines += [
            "    case LayerConfig::k%s:" % _camel_case(name, after_digits = True),
            "      return Create%s(config.%s());" % (_camel_case(name, after_digits = False), name),
        ]
    lines += [
        "    case LayerConfig::TYPE_NOT_SET:",
        "      break;",
        "  }",
        "  return absl::InvalidArgumentError(\"expected a type, one of %s\");" % ", ".join(_LAYERS),
        "}",
        "",
        "}  // namespace gyre",
        "",
    ]
    return "\n".join(lines)

def _factory_impl(ctx):
    out = ctx.actions.declare_file(ctx.attr.name + ".cc")
    text = ctx.actions.declare_file(ctx.attr.name + ".txt")
    ctx.actions.write(text, _factory_source())
    ctx.actions.run_shell(
        command = "cp $1 $2",
        arguments = [text.path, out.path],
        inputs = [text] + ctx.files.tests,
        outputs = [out],
        mnemonic = "LayerFactory",
    )
    return [DefaultInfo(files = depset([out]))]

_factory = rule(
    implementation = _factory_impl,
    attrs = {"tests": attr.label_list(allow_files = [".cc"])},
)

def layer_libraries(name):
    """Declares one library a family, and the factory's source.

    Args:
      name: of the factory's source, NAME.cc.

    Returns:
      The labels of the libraries.
    """
    for family in FAMILIES:
        device_cc_library(
            name = family,
            srcs = [family + ".cc"],
            visibility = ["//visibility:private"],
            deps = _DEPS,
        )
    _factory(
        name = name,
        tests = ["//tests/layers:%s_test.cc" % family for family in FAMILIES],
        visibility = ["//visibility:private"],
    )
    return [":" + family for family in FAMILIES]
