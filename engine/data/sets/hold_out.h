// hold_out.h: which samples are held back for testing.  Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/schema/trainer.pb.h"

namespace gyre {

// For each of `size` samples, whether it is held back, by the configuration's seed, whatever the
// run's.  `kinds` is a number for each sample: its class (CLASS) or its group from 0 (GROUP).  At
// least one is held back of two samples, of each class that has two (CLASS), and of two groups.
std::vector<bool> HeldOut(int64_t size, const HoldOutConfig& config,
                          std::span<const int64_t> kinds = {});

}  // namespace gyre
