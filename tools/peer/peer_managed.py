"""PyTorch's memory as CUDA's unified memory: what the GPU lacks moves by page faults.

An allocator made of ctypes callbacks, so that no compiler is needed.  PyTorch makes allocators of a
library's functions (torch.cuda.memory.CUDAPluggableAllocator); this one hands it Python's, by what that
class calls.  Freed blocks are kept and used again, the smallest that fits and is not twice as large:
cudaFree would wait for the GPU.
"""

import bisect
import ctypes
import threading

_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_GRAIN = 512  # bytes, as PyTorch's own
_ATTACH_GLOBAL = 1


def cuda_runtime(version):
    """The library that PyTorch, built for this version of CUDA, has loaded."""
    return ctypes.CDLL("libcudart.so.%s" % version.split(".")[0])


class ManagedMemory:
    """Live as long as PyTorch's tensors."""

    def __init__(self, runtime):
        self._runtime = runtime
        self._lock = threading.RLock()  # a callback may collect garbage, whose memory comes back
        self._free = {}  # by stream: (bytes, address), sorted
        self._used = {}  # by address: bytes of the block
        self._in_use = self.peak = 0
        self.allocate, self.release = _ALLOCATE(self._allocate), _RELEASE(self._release)

    def install(self, torch):
        """Before PyTorch has used the GPU."""
        address = [ctypes.cast(f, ctypes.c_void_p).value for f in (self.allocate, self.release)]
        torch._C._cuda_changeCurrentAllocator(torch._C._cuda_customAllocator(*address))

    def reset_peak(self):
        """The bytes in use now; the peak counts from here."""
        self.peak = self._in_use
        return self._in_use

    def give_back(self):
        """What is not in use; the GPU must be at rest."""
        with self._lock:
            for blocks in self._free.values():
                for _, address in blocks:
                    self._runtime.cudaFree(ctypes.c_void_p(address))
            self._free.clear()

    def leave(self, bound):
        """Takes what is free on the GPU but `bound` bytes, for good; returns what is left.

        The bytes are pinned down by cudaMalloc, so that managed pages beyond the rest have to leave.
        """
        free, total, taken = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
        self._check("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        if free.value > bound:
            self._check("cudaMalloc", ctypes.byref(taken), ctypes.c_size_t(free.value - bound))
            self._check("cudaMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def _check(self, function, *arguments):
        code = getattr(self._runtime, function)(*arguments)
        if code != 0:
            raise RuntimeError("%s: error %d" % (function, code))

    def _allocate(self, size, device, stream):
        with self._lock:
            size = max(1, -(-size // _GRAIN)) * _GRAIN
            blocks = self._free.setdefault(stream, [])
            at = bisect.bisect_left(blocks, (size, 0))
            if at < len(blocks) and blocks[at][0] < 2 * size:
                size, address = blocks.pop(at)
            else:
                made = ctypes.c_void_p()
                if self._runtime.cudaMallocManaged(ctypes.byref(made), ctypes.c_size_t(size),
                                                   ctypes.c_uint(_ATTACH_GLOBAL)) != 0:
                    return None  # which PyTorch would touch: the run ends, and its row says so
                address = made.value
            self._used[address] = size
            self._in_use += size
            self.peak = max(self.peak, self._in_use)
            return address

    def _release(self, address, size, device, stream):
        with self._lock:
            size = self._used.pop(address)
            self._in_use -= size
            bisect.insort(self._free.setdefault(stream, []), (size, address))
