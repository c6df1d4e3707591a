// random_net.h: texts of nets of random layers, sizes and options, for judges of exported models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gyre {

struct RandomNet {
  std::string text;
  std::vector<std::string> outputs;  // layers
};

RandomNet MakeRandomNet(uint64_t seed);

}  // namespace gyre
