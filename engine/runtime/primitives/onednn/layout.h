// layout.h: names for oneDNN's blocked weight layouts, such as "onednn:Acdb16a":
// oneDNN's own notation, so that a plan, a message and another shape of the same layer can carry
// one.  A name and the weights' extents give the layout back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "oneapi/dnnl/dnnl.hpp"

namespace gyre {

// Empty if oneDNN has no name for the layout.
std::string OneDnnLayoutTag(const dnnl::memory::desc& desc);

// Weights with the extents `dims` in the layout that a tag names; nullopt if the tag is not
// OneDnnLayoutTag's or does not suit the rank.
std::optional<dnnl::memory::desc> OneDnnLayout(const dnnl::memory::dims& dims,
                                               dnnl::memory::data_type type, std::string_view tag);

}  // namespace gyre
