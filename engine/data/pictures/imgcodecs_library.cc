#include "engine/data/pictures/imgcodecs_library.h"

#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/runtime/own_library.h"

namespace gyre {
namespace {

constexpr char kLibrary[] = "libgyre_imgcodecs.so";
constexpr char kAdvice[] =
    "; build //engine/data/pictures/imgcodecs:libgyre_imgcodecs.so and put it beside the program";

absl::StatusOr<ImgcodecsLibrary> OpenLibrary() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = PathOfOwnLibrary(kLibrary, "engine/data/pictures/imgcodecs");
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const std::string why = dlerror();
    if (path == kLibrary) {
      return absl::UnavailableError(
          absl::StrCat("expected ", kLibrary,
                       ", which reads TIFF, BMP, JPEG 2000 and PNM and draws text, beside ",
                       program.string(), ", got: ", why, kAdvice));
    }
    return absl::UnavailableError(absl::StrCat(
        "TIFF, BMP, JPEG 2000, PNM and drawn text need ", path, ", which does not load: ", why,
        "; run tools/setup, or apt-get install libopencv-imgproc406 libtiff6 libopenjp2-7"));
  }
  ImgcodecsLibrary library;
  library.read_header = reinterpret_cast<ReadOtherHeaderFunction*>(dlsym(handle, kReadOtherHeader));
  library.decode = reinterpret_cast<DecodeOtherFunction*>(dlsym(handle, kDecodeOther));
  library.draw_text = reinterpret_cast<DrawTextFunction*>(dlsym(handle, kDrawText));
  if (library.read_header == nullptr || library.decode == nullptr || library.draw_text == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("expected ", path, " of this version, got another", kAdvice));
  }
  return library;
}

}  // namespace

absl::StatusOr<ImgcodecsLibrary> LoadImgcodecs() {
  static const absl::StatusOr<ImgcodecsLibrary> library = OpenLibrary();
  return library;
}

absl::Status ImgcodecsStatus(int code, const char* text) {
  return absl::Status(static_cast<absl::StatusCode>(code), text);
}

}  // namespace gyre
