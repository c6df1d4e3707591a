// table_fixture.h: tables as data sets, of files in a folder of the test's own.
#pragma once

#include <gmock/gmock.h>

#include <string>

#include "tests/data/series_fixture.h"

namespace gyre {

inline const NetInput kRealLabel{"label", {1}, false}, kClassLabel{"label", {}, true};

class Table : public Series {
 protected:
  static std::string Data(const std::string& more = "", const std::string& file = "t.csv") {
    return absl::StrCat("train { table { file: '", file, "' ", more,
                        " } } test { table { file: 'test.csv' } }");
  }
  // The shape of an array's samples.
  static std::string ShapeOf(const Dataset& dataset, const std::string& input) {
    for (const DataArray& array : dataset.arrays()) {
      if (array.input == input) return array.shape.ToString();
    }
    return "none";
  }
};

}  // namespace gyre
