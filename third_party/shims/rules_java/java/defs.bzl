"""Bazel's own Java rules: Bazel 4 loads this file for its registered toolchains in any build."""

java_binary = native.java_binary
java_import = native.java_import
java_library = native.java_library
java_package_configuration = native.java_package_configuration
java_runtime = native.java_runtime
java_toolchain = native.java_toolchain
