#include "tools/bench/op_bench.h"

#include <gtest/gtest.h>

namespace gyre {
namespace {

// Takes products, and fails when they are run.
class RefusingLibrary : public PrimitiveLibrary {
 public:
  std::string_view name() const override { return "refusing"; }
  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec&) const override {
    class Refusing : public Gemm {
      size_t scratch_bytes() const override { return 0; }
      absl::Status Run(Stream&, const void*, const void*, const void*, void*,
                       void*) const override {
        return absl::InternalError("not today");
      }
    };
    return std::make_unique<Refusing>();
  }
};

TEST(OpBench, AWayThatRefusesEndsNoOther) {
  auto choice = OpenDevice({.kind = "cpu", .threads = 1});
  ASSERT_TRUE(choice.ok());
  OpBench::Libraries libraries;
  libraries.push_back(NewReferenceLibrary());
  libraries.push_back(std::make_unique<RefusingLibrary>());
  libraries.push_back(NewBlockedLibrary());
  std::vector<nlohmann::ordered_json> rows;
  auto bench = OpBench::Create(*std::move(choice), std::move(libraries),
                               [&](const nlohmann::ordered_json& row) { rows.push_back(row); });
  ASSERT_TRUE(bench.ok());
  GemmSpec spec;
  spec.m = spec.n = spec.k = 8;
  ASSERT_TRUE((*bench)->Measure(spec, OpPrecision{}).ok());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1]["way"], "refusing");
  EXPECT_EQ(rows[1]["refused"], "INTERNAL: not today");
  EXPECT_EQ(rows[2]["right"], true);
  EXPECT_EQ((*bench)->refused(), 1);
  EXPECT_EQ((*bench)->wrong(), 0);
}

}  // namespace
}  // namespace gyre
