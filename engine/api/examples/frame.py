"""The first prediction of frames.cc, from Python: frame.py libgyre.so NET.gyre"""
import ctypes as c
import sys

class Array(c.Structure):
    _fields_ = [("name", c.c_char_p), ("type", c.c_int), ("data", c.c_void_p), ("bytes", c.c_size_t)]

class Info(c.Structure):
    _fields_ = [("name", c.c_char_p), ("is_output", c.c_int), ("type", c.c_int), ("dims", c.POINTER(c.c_int64)),
                ("rank", c.c_size_t), ("elements", c.c_int64), ("classes", c.POINTER(c.c_char_p)), ("count", c.c_size_t)]

gyre, predictor = c.CDLL(sys.argv[1]), c.c_void_p()
gyre.gyre_last_error.restype, gyre.gyre_predictor_array.restype = c.c_char_p, c.POINTER(Info)
def call(code):
    if code != 0: sys.exit("error: " + gyre.gyre_last_error().decode())

call(gyre.gyre_predictor_open(sys.argv[2].encode(), None, c.byref(predictor)))
image, scores = (gyre.gyre_predictor_array(predictor, c.c_size_t(i)).contents for i in (0, 1))
frame = bytes((4 * x + 5 * y * (rgb + 1)) % 256 for y in range(48) for x in range(64) for rgb in range(3))
fitted, shares = (c.c_uint8 * image.elements)(), (c.c_float * scores.elements)()
call(gyre.gyre_predictor_fit_picture(predictor, image.name, frame, c.c_int64(48), c.c_int64(64), c.c_int64(3), fitted, c.c_size_t(len(fitted))))
arrays = (Array * 2)((image.name, 2, c.addressof(fitted), len(fitted)), (scores.name, 0, c.addressof(shares), 4 * len(shares)))
call(gyre.gyre_predictor_run(predictor, c.c_int64(1), arrays, c.c_size_t(2)))
best = max(range(len(shares)), key=lambda i: shares[i])
print("frame 0: %s %.6f" % (scores.classes[best].decode() if best < scores.count else best, shares[best]))
