// Looks layouts up by trying all of oneDNN's format tags: a few hundred cheap descriptors, once an
// operation.
#include "engine/runtime/primitives/onednn/layout.h"

#include <algorithm>

#include "oneapi/dnnl/dnnl_debug.h"

namespace gyre {
namespace {

constexpr std::string_view kPrefix = "onednn:";

// The first of oneDNN's format tags that accept(tag, descriptor of `dims` in it) likes.
template <typename Accept>
std::optional<dnnl_format_tag_t> FindFormat(const dnnl_dims_t& dims, int rank,
                                            dnnl_data_type_t type, Accept accept) {
  for (int i = dnnl_format_tag_any + 1; i < dnnl_format_tag_last; ++i) {
    const auto tag = static_cast<dnnl_format_tag_t>(i);
    dnnl_memory_desc_t desc;
    if (dnnl_memory_desc_init_by_tag(&desc, rank, dims, type, tag) == dnnl_success &&
        accept(tag, desc)) {
      return tag;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string OneDnnLayoutTag(const dnnl::memory::desc& desc) {
  const auto format = FindFormat(desc.data.dims, desc.data.ndims, desc.data.data_type,
                                 [&](dnnl_format_tag_t, const dnnl_memory_desc_t& candidate) {
                                   return dnnl_memory_desc_equal(&candidate, &desc.data) != 0;
                                 });
  if (!format.has_value()) return "";
  return std::string(kPrefix) + dnnl_fmt_tag2str(*format);
}

std::optional<dnnl::memory::desc> OneDnnLayout(const dnnl::memory::dims& dims,
                                               dnnl::memory::data_type type, std::string_view tag) {
  if (!tag.starts_with(kPrefix)) return std::nullopt;
  const std::string_view name = tag.substr(kPrefix.size());
  dnnl_dims_t extents = {};
  std::copy(dims.begin(), dims.end(), extents);
  std::optional<dnnl::memory::desc> found;
  FindFormat(extents, static_cast<int>(dims.size()), dnnl::memory::convert_to_c(type),
             [&](dnnl_format_tag_t format, const dnnl_memory_desc_t& desc) {
               if (name != dnnl_fmt_tag2str(format)) return false;
               found.emplace(desc);
               return true;
             });
  return found;
}

}  // namespace gyre
