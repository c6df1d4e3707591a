// array_bytes.h: files of arrays as other programs write them, byte by byte.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace gyre {

inline std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

// An IDX file of bytes with these extents and elements.
inline std::string Idx(const std::vector<uint32_t>& dims, const std::string& elements) {
  std::string bytes = BigEndian(0x0800 | static_cast<uint32_t>(dims.size()));
  for (uint32_t extent : dims) bytes += BigEndian(extent);
  return bytes + elements;
}

inline std::string RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

inline std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// A .npy file of version 1.0 whose header is this text.
inline std::string NpyOf(const std::string& literal, const std::string& elements) {
  std::string bytes("\x93NUMPY\1\0", 8);
  bytes += static_cast<char>(literal.size() & 0xff);
  bytes += static_cast<char>(literal.size() >> 8);
  return bytes + literal + elements;
}

inline std::string Npy(const std::string& type, const std::string& shape,
                       const std::string& elements) {
  return NpyOf("{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }\n",
               elements);
}

}  // namespace gyre
