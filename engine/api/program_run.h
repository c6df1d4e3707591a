// program_run.h: a training run of a program: its texts, its ranks, and its arrays.  Used by one
// thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "distributed/process_group.h"
#include "engine/api/array_list.h"
#include "engine/api/fed_batch.h"
#include "engine/api/opened_device.h"
#include "engine/training/run/fed_run.h"

namespace gyre {

struct ProgramRunOptions {
  std::string trainer_text = {}, net_text = {};
  std::string trainer_file = {};  // in place of both
  std::string out = {}, resume = {}, weights = {};
  std::vector<std::string> classes = {};  // names by number
  DeviceWish device = {};
  const void* mpi_comm = nullptr;  // MPI_Comm*, or null for one rank
};

class ProgramRun {
 public:
  // Called with a step's or a test's metrics.
  using Tell = std::function<void(int64_t step, bool is_test,
                                  const std::vector<std::pair<std::string, double>>& values)>;

  // Errors: those of the texts, the ranks, the device and FedRun::Open.
  static absl::StatusOr<std::unique_ptr<ProgramRun>> Open(const ProgramRunOptions& options,
                                                          Tell tell);
  ~ProgramRun();

  const ArrayList& arrays() const { return *arrays_; }
  int64_t batch() const { return run_->train_plan().spec.shape.local; }
  int64_t steps() const { return run_->step(); }

  // With several ranks, an error of one becomes that of all, and ends the run.
  absl::Status Step(const gyre_array* given, size_t count);
  absl::Status Test(int64_t samples, const gyre_array* given, size_t count);
  absl::Status Save() { return Agreed(run_->Save()); }
  absl::Status Load(const std::string& path) { return run_->Load(path); }
  absl::Status Export(const std::string& path);

 private:
  ProgramRun() = default;
  absl::Status ReadTexts(const ProgramRunOptions& options);
  absl::Status Start(const ProgramRunOptions& options);
  // The same outcome on all ranks, of which some may have failed alone.
  absl::Status Agreed(const absl::Status& status);
  // Tells the other ranks, which would wait for this one.
  absl::Status Refuse(const absl::Status& status);
  absl::Status FillBatch(const gyre_array* given, size_t count);
  void TellMetrics(bool is_test, const std::vector<Metric>& metrics) const;

  Parsed<TrainerConfig> trainer_;
  Parsed<NetConfig> net_;
  Tell tell_;
  OpenedDevice device_;
  std::unique_ptr<ProcessGroup> ranks_;
  std::unique_ptr<FedRun> run_;
  std::optional<ArrayList> arrays_;
  std::optional<FedBatch> fed_;
};

}  // namespace gyre
