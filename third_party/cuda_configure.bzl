"""Finds the CUDA toolkit and writes it down as @local_config_cuda//:config.bzl."""

def _find_nvcc(ctx):
    home = ctx.os.environ.get("CUDA_HOME")
    if home:
        candidates = [ctx.path(home + "/bin/nvcc")]
    else:
        candidates = [ctx.which("nvcc"), ctx.path("/usr/local/cuda/bin/nvcc")]
    for nvcc in candidates:
        if nvcc and nvcc.exists:
            return nvcc
    return None

# What the sources include beside the run time.  Nothing of the kind is linked.
_HEADERS = ["cublasLt.h", "cudnn.h", "nccl.h"]

def _missing_headers(ctx, home):
    return [
        header
        for header in _HEADERS
        if not ctx.path(home + "/include/" + header).exists and not ctx.path("/usr/include/" + header).exists
    ]

def _cuda_configure_impl(ctx):
    wanted = ctx.os.environ.get("WITH_CUDA", "auto")
    if wanted not in ("auto", "0", "1"):
        fail("WITH_CUDA is %r: expected auto, 0 or 1" % wanted)
    nvcc = None if wanted == "0" else _find_nvcc(ctx)
    if wanted == "1" and not nvcc:
        fail("WITH_CUDA=1, but there is no nvcc in $CUDA_HOME/bin (or, where that is unset, in PATH " +
             "or /usr/local/cuda/bin): set CUDA_HOME to the folder of a CUDA toolkit, or WITH_CUDA=0")
    home = str(nvcc.dirname.dirname) if nvcc else None
    missing = _missing_headers(ctx, home) if home else []
    if missing:
        problem = ("%s: not in %s/include or /usr/include; install the development packages of cuBLAS, " +
                   "cuDNN 9 and NCCL for this toolkit") % (", ".join(missing), home)
        if wanted == "1":
            fail("WITH_CUDA=1, but " + problem)
        print("building without CUDA: " + problem)
        home = None
    ctx.file("BUILD", "")
    ctx.file("config.bzl", "CUDA_HOME = %s\n" % repr(home))

cuda_configure = repository_rule(
    doc = "CUDA_HOME in config.bzl is the toolkit's folder, or None for a CPU-only build.",
    implementation = _cuda_configure_impl,
    environ = ["CUDA_HOME", "PATH", "WITH_CUDA"],
    local = True,
)
