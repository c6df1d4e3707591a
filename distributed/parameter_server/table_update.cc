#include "distributed/parameter_server/table_update.h"

namespace gyre {
namespace {

class Addition final : public TableUpdate {
 public:
  explicit Addition(double factor) : factor_(factor) {}
  absl::Status Apply(Stream& stream, const OwnedRows& rows, RowIndices places, Tensor sent,
                     int64_t) const override {
    return AddScaledRows(stream, places, rows.width, factor_, sent, rows.values);
  }

 private:
  const double factor_;
};

}  // namespace

std::unique_ptr<TableUpdate> NewAddition(double factor) {
  return std::make_unique<Addition>(factor);
}

}  // namespace gyre
