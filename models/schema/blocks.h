// blocks.h: blocks (parts of a net written once, with arguments) put in the place of the layers
// that use them, so that nothing after the parser knows of them.  A pure edit of the message.
#pragma once

#include "absl/status/status.h"
#include "models/schema/net.pb.h"
#include "models/schema/source_map.h"

namespace gyre {

// Replaces every layer that has `use` by copies of its block's layers, and forgets the blocks.
// Copies are called USER-LAYER, or USER-K-LAYER (K from 1) where `repeat` is above 1.  In `input`,
// a block's layers mean its own layers, then the names of its inputs, then what the net has;
// everybody else means by USER the output of its last layer.  A copy has the user's phase too; one
// of another phase is left out.  The address of layers without `use` stays.
//
// Positions of copies read "net.textproto:14:3, used at net.textproto:40:1"; a field that an
// argument set has the user's. Errors: InvalidArgument with position for an unknown block or
// argument ("did you mean"), a missing value, one of another type than its field, another number of
// inputs, a block that uses itself (naming the way), a name taken twice, a repeat below 1, more
// than kMostLayers layers.
absl::Status ExpandBlocks(NetConfig& net, SourceMap& source);

inline constexpr int kMostLayers = 100'000;

}  // namespace gyre
