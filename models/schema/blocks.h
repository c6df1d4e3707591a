// blocks.h: replaces layers that use a block by the block's layers.  A block is a part of a net
// written once, with arguments.  Nothing after the parser knows it.  A pure edit of the message.
#pragma once

#include "absl/status/status.h"
#include "models/schema/net.pb.h"
#include "models/schema/source_map.h"

namespace gyre {

// Replaces every layer that has `use` by copies of its block's layers, and deletes the blocks.
//   names   USER-LAYER, or USER-K-LAYER (K from 1) where `repeat` is above 1
//   input   within a block, its own layers, then its inputs, then the net's; elsewhere, USER is the
//           output of its last layer
//   phase   the user's too.  A copy of another phase is left out
//   errors  "net.textproto:14:3, used at net.textproto:40:1", or the user's position for a field
//           that an argument set
// Layers without `use` keep their address.
// Errors: InvalidArgument with position for an unknown block or argument ("did you mean"), a value
// missing or of a wrong type, or a wrong number of inputs.  Also for a block that uses itself (with
// the cycle), a repeated name, a repeat below 1, and more than kMostLayers layers.
absl::Status ExpandBlocks(NetConfig& net, SourceMap& source);

inline constexpr int kMostLayers = 100'000;

}  // namespace gyre
