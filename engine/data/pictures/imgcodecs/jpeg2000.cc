#include "engine/data/pictures/imgcodecs/jpeg2000.h"

#include <openjpeg-2.5/openjpeg.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/pictures/imgcodecs/jpeg2000_size.h"

namespace gyre {
namespace {

// A file in memory, as OpenJPEG reads it.
class FileStream {
 public:
  explicit FileStream(std::string_view file)
      : file_(file), stream_(opj_stream_create(kBuffer, /*input=*/OPJ_TRUE), opj_stream_destroy) {
    opj_stream_set_user_data(stream_.get(), this, nullptr);
    opj_stream_set_user_data_length(stream_.get(), file.size());
    opj_stream_set_read_function(stream_.get(), Read);
    opj_stream_set_skip_function(stream_.get(), Skip);
    opj_stream_set_seek_function(stream_.get(), Seek);
  }
  FileStream(const FileStream&) = delete;
  FileStream& operator=(const FileStream&) = delete;

  opj_stream_t* get() const { return stream_.get(); }

 private:
  static constexpr size_t kBuffer = 1 << 16;
  static constexpr OPJ_SIZE_T kEnd = static_cast<OPJ_SIZE_T>(-1);

  static OPJ_SIZE_T Read(void* to, OPJ_SIZE_T bytes, void* self) {
    auto& stream = *static_cast<FileStream*>(self);
    if (stream.at_ >= stream.file_.size()) return kEnd;
    const size_t count = std::min<size_t>(bytes, stream.file_.size() - stream.at_);
    std::memcpy(to, stream.file_.data() + stream.at_, count);
    stream.at_ += count;
    return count;
  }
  static OPJ_OFF_T Skip(OPJ_OFF_T bytes, void* self) {
    auto& stream = *static_cast<FileStream*>(self);
    return Seek(static_cast<OPJ_OFF_T>(stream.at_) + bytes, self) ? bytes : -1;
  }
  static OPJ_BOOL Seek(OPJ_OFF_T to, void* self) {
    auto& stream = *static_cast<FileStream*>(self);
    if (to < 0 || static_cast<uint64_t>(to) > stream.file_.size()) return OPJ_FALSE;
    stream.at_ = static_cast<size_t>(to);
    return OPJ_TRUE;
  }

  const std::string_view file_;
  size_t at_ = 0;
  const std::unique_ptr<opj_stream_t, void (*)(opj_stream_t*)> stream_;
};

// A file of which slices are decoded one after the other.
class OpenJpeg2000 {
 public:
  explicit OpenJpeg2000(std::string_view file)
      : stream_(file),
        codec_(opj_create_decompress(file.starts_with("\xff\x4f") ? OPJ_CODEC_J2K : OPJ_CODEC_JP2),
               opj_destroy_codec) {
    opj_set_error_handler(codec_.get(), OnError, &complaint_);
  }
  OpenJpeg2000(const OpenJpeg2000&) = delete;
  OpenJpeg2000& operator=(const OpenJpeg2000&) = delete;

  Refusal ReadHeader() {
    opj_dparameters_t parameters;
    opj_set_default_decoder_parameters(&parameters);
    opj_image_t* image = nullptr;
    const bool read = opj_setup_decoder(codec_.get(), &parameters) != OPJ_FALSE &&
                      opj_read_header(stream_.get(), codec_.get(), &image) != OPJ_FALSE;
    image_.reset(image);
    if (!read) return Refused();
    left_ = image->x0, top_ = image->y0;
    return {};
  }

  // Decodes a part to components of its size.  Below another part, of a file of one tile, code
  // blocks that both need are decoded once.
  Refusal Decode(const Window& part) {
    const auto at = [](int64_t place) { return static_cast<OPJ_INT32>(place); };
    if (opj_set_decode_area(codec_.get(), image_.get(), at(left_ + part.left), at(top_ + part.top),
                            at(left_ + part.left + part.width),
                            at(top_ + part.top + part.height)) == OPJ_FALSE ||
        opj_decode(codec_.get(), stream_.get(), image_.get()) == OPJ_FALSE) {
      return Refused();
    }
    for (OPJ_UINT32 c = 0; c < image_->numcomps; ++c) {
      const opj_image_comp_t& component = image_->comps[c];
      if (component.data == nullptr || component.w != part.width || component.h != part.height) {
        return Refused();
      }
    }
    return CheckColors(*image_);
  }

  const opj_image_t& image() const { return *image_; }

 private:
  // The first of OpenJPEG's errors.  Warnings are of boxes and markers that nobody needs.
  static void OnError(const char* message, void* complaint) {
    auto& text = *static_cast<std::string*>(complaint);
    if (text.empty()) text = std::string(message, std::strcspn(message, "\n"));
  }
  Refusal Refused() const {
    return Damaged("the JPEG 2000 is truncated or damaged: " +
                   (complaint_.empty() ? "OpenJPEG refuses it" : complaint_));
  }
  // Errors: InvalidArgument for colours and samples that are not shown as they are.
  static Refusal CheckColors(const opj_image_t& image) {
    const bool shown = image.numcomps == 1 || image.numcomps == 3 || image.numcomps == 4;
    if (!shown || image.color_space == OPJ_CLRSPC_SYCC || image.color_space == OPJ_CLRSPC_EYCC ||
        image.color_space == OPJ_CLRSPC_CMYK) {
      return Invalid(
          "expected JPEG 2000 of grey, or of red, green, blue, got other colours; convert it to "
          "PNG or TIFF");
    }
    for (OPJ_UINT32 c = 0; c < image.numcomps; ++c) {
      if (image.comps[c].sgnd != 0 || image.comps[c].prec < 1 || image.comps[c].prec > 16) {
        return Invalid("expected JPEG 2000 of unsigned samples of at most 16 bits");
      }
    }
    return {};
  }

  const FileStream stream_;
  std::string complaint_;
  const std::unique_ptr<opj_codec_t, void (*)(opj_codec_t*)> codec_;
  std::unique_ptr<opj_image_t, void (*)(opj_image_t*)> image_{nullptr, opj_image_destroy};
  int64_t left_ = 0, top_ = 0;
};

// Whether OpenJPEG leaves the channels where they are.  It moves them if the box of their
// definitions has another order: a count, then channel, type and colour of each.
bool KeepsOrder(std::string_view boxes) {
  const size_t box = boxes.find("cdef");
  if (box == boxes.npos) return true;
  const auto at = [&](size_t offset) {
    return offset + 2 > boxes.size() ? -1
                                     : static_cast<uint8_t>(boxes[offset]) * 256 +
                                           static_cast<uint8_t>(boxes[offset + 1]);
  };
  constexpr int kWhole = 0, kNone = 65535;  // alpha's colours
  for (int i = 0; i < at(box + 4); ++i) {
    const size_t channel = box + 6 + 6 * static_cast<size_t>(i);
    const int color = at(channel + 4);
    if (color != kWhole && color != kNone && color != at(channel) + 1) return false;
  }
  return boxes.find("cdef", box + 4) == boxes.npos;
}

// Whether a reader can go on to further slices: of several tiles OpenJPEG forgets the first, and a
// palette, or an order of channels, is applied to the first slice alone.
bool GoesOn(std::string_view file, bool one_tile) {
  const std::string_view boxes = file.substr(0, file.find("jp2c"));
  return one_tile &&
         (file.starts_with("\xff\x4f") || (boxes.find("pclr") == boxes.npos && KeepsOrder(boxes)));
}

void ShowRow(const opj_image_t& image, int64_t row, int64_t width, uint8_t* to) {
  const int64_t channels = image.numcomps;
  for (int64_t c = 0; c < channels; ++c) {
    const opj_image_comp_t& component = image.comps[c];
    const uint32_t most = (1u << component.prec) - 1;
    const OPJ_INT32* const from = component.data + row * width;
    for (int64_t x = 0; x < width; ++x) {
      const auto value = static_cast<uint32_t>(std::max(from[x], 0));
      to[x * channels + c] = ShownSample(std::min(value, most), most);
    }
  }
}

}  // namespace

Refusal DecodeJpeg2000(std::string_view file, const PictureHeader& header, const Window& stored,
                       RowFunction row) {
  Jpeg2000Size size;
  Refusal refusal = ReadJpeg2000Size(file, size);
  if (refusal.refused()) return refusal;
  const bool goes_on = GoesOn(file, size.tiles == 1);
  // Slices of large pictures are larger, and those of new readers, which decode the code blocks
  // that they share with the slice above again.
  const int64_t least = goes_on ? 1 << 16 : 1 << 19, slices = goes_on ? 64 : 32;
  const int64_t pixels = std::max(least, header.height * header.width / slices);
  const int64_t most_rows = std::max<int64_t>(pixels / stored.width, 1);
  // For each slice a reader notes anew where all parts of code blocks are, in 16 to 32 bytes each,
  // and keeps these notes.
  constexpr int64_t kMostNotes = 1 << 17;
  const int64_t slices_of_reader = goes_on ? std::max<int64_t>(kMostNotes / size.parts, 1) : 1;
  std::optional<OpenJpeg2000> reader;
  int64_t slice = 0;
  std::vector<uint8_t> shown;
  const int64_t bottom = stored.top + stored.height;
  for (int64_t top = stored.top; top < bottom; top += most_rows, ++slice) {
    const int64_t rows = std::min(most_rows, bottom - top);
    if (slice % slices_of_reader == 0) {
      refusal = reader.emplace(file).ReadHeader();
      if (refusal.refused()) return refusal;
    }
    refusal = reader->Decode({top, stored.left, rows, stored.width});
    if (refusal.refused()) return refusal;
    const opj_image_t& image = reader->image();
    shown.resize(static_cast<size_t>(stored.width * image.numcomps));
    for (int64_t y = 0; y < rows; ++y) {
      ShowRow(image, y, stored.width, shown.data());
      row(shown.data(), static_cast<int>(image.numcomps));
    }
  }
  return {};
}

}  // namespace gyre
