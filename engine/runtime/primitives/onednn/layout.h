// layout.h: oneDNN's own names for its blocked weight layouts, such as "onednn:Acdb16a".  A plan, a
// message or another shape of the layer can carry one.  With the weights' extents it is the layout.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "oneapi/dnnl/dnnl.hpp"

namespace gyre {

// Empty if oneDNN has no name for the layout.
std::string OneDnnLayoutTag(const dnnl::memory::desc& desc);

// Returns the layout that a tag names, for weights of extents `dims`.  nullopt if the tag is not
// OneDnnLayoutTag's or does not suit the rank.
std::optional<dnnl::memory::desc> OneDnnLayout(const dnnl::memory::dims& dims,
                                               dnnl::memory::data_type type, std::string_view tag);

}  // namespace gyre
