#include "engine/training/step/evaluation.h"

#include <map>

#include "engine/runtime/device/buffer.h"
#include "engine/training/metrics/record_metrics.h"
#include "engine/training/step/test_iteration.h"

namespace gyre {

namespace {

class StatisticSums {
 public:
  StatisticSums(Device& device, ProcessGroup& communication)
      : device_(device), communication_(communication) {}
  ~StatisticSums() {
    for (const auto& [label, copy] : copies_) static_cast<void>(copy.back->Synchronize());
  }

  absl::Status Sum(Stream& stream, const std::string& label, Tensor statistic) {
    if (communication_.size() == 1) return absl::OkStatus();  // it is the sum
    ASSIGN_OR_RETURN(const StatisticCopy* const copy, CopyOf(stream, label, statistic.bytes()));
    RETURN_IF_ERROR(stream.Copy(copy->host.data(), statistic.data, statistic.bytes()));
    RETURN_IF_ERROR(stream.Record(*copy->out));
    const ProcessGroup::Ticket ticket =
        communication_.Submit(label, {copy->host.data(), statistic.shape, statistic.dtype},
                              copy->out.get(), MemoryKind::kPinnedHost, kAwaited);
    if (stream.kind() == DeviceKind::kCpu) {  // the stream is this thread, which may help
      RETURN_IF_ERROR(communication_.Wait(ticket).status());
    } else {
      RETURN_IF_ERROR(stream.CallOnHost(
          [&communication = communication_, ticket] { return communication.Await(ticket); }));
    }
    RETURN_IF_ERROR(stream.Copy(statistic.data, copy->host.data(), statistic.bytes()));
    return stream.Record(*copy->back);
  }

 private:
  // A statistic in transit through host memory.
  struct StatisticCopy {
    Buffer host;
    std::unique_ptr<Event> out, back;  // it has come, and its sum has gone
  };

  // Waits for the previous sum, which uses the same events.
  absl::StatusOr<const StatisticCopy*> CopyOf(Stream& stream, const std::string& label,
                                              size_t bytes) {
    if (const auto found = copies_.find(label); found != copies_.end()) {
      RETURN_IF_ERROR(found->second.back->Synchronize());
      if (found->second.host.bytes() >= bytes) return &found->second;
    }
    // Allocation may wait for the device, which must not wait for other ranks meanwhile.
    RETURN_IF_ERROR(stream.Synchronize());
    StatisticCopy copy;
    ASSIGN_OR_RETURN(copy.host, Buffer::Allocate(device_, MemoryKind::kPinnedHost, bytes));
    ASSIGN_OR_RETURN(copy.out, device_.NewEvent());
    ASSIGN_OR_RETURN(copy.back, device_.NewEvent());
    return &(copies_[label] = std::move(copy));
  }

  Device& device_;
  ProcessGroup& communication_;
  std::map<std::string, StatisticCopy> copies_;
};

}  // namespace

Net::SumStatistic StatisticSummer(Device& device, ProcessGroup& communication) {
  return [sums = std::make_shared<StatisticSums>(device, communication)](
             Stream& stream, absl::string_view label, Tensor statistic) {
    return sums->Sum(stream, std::string(label), statistic);
  };
}

namespace {

constexpr int kBatchesAhead = 3;

// Runs `net` over `batches` batches of a data set from position `first` on.
absl::Status RunTestOf(const Net& net, Pager* pager, int64_t first, int64_t batches,
                       const Dataset& dataset, Device& device, Stream& stream,
                       ProcessGroup& communication, const TestSink& sink) {
  ASSIGN_OR_RETURN(const auto loader, NewLoader(dataset, /*train=*/false, net.plan().spec.shape,
                                                net.plan().feed, first, kBatchesAhead, device));
  ASSIGN_OR_RETURN(TestIteration iteration, TestIteration::Create(device, net, pager));
  const Net::SumStatistic sum = StatisticSummer(device, communication);
  RETURN_IF_ERROR(net.ClearCarried(stream));
  for (int64_t b = 0; b < batches; ++b) {
    const Batch batch = loader->Next();
    const absl::Status run = iteration.Run(batch, stream, sum);
    if (!run.ok()) return absl::IsInvalidArgument(run) ? Annotate(run, "test data") : run;
    RETURN_IF_ERROR(
        sink({net, iteration.results(), batch, first + b * net.plan().spec.shape.global}));
    loader->Release(batch);
  }
  // The next net's pages share this net's memory.
  return pager == nullptr ? absl::OkStatus() : pager->BringHome(stream);
}

// Buffers may differ between ranks, if each has statistics of its own samples.  Checkpoints and
// tests use the first rank's.  Training does not compute with them.
absl::Status ShareBuffers(const Model& model, Device& device, Stream& stream,
                          ProcessGroup& communication) {
  if (communication.size() == 1) return absl::OkStatus();
  model.ReleaseHomes();
  const Net::SumStatistic sum = StatisticSummer(device, communication);
  const ParameterSet& parameters = model.plan().parameters;
  for (size_t i = 0; i < parameters.all().size(); ++i) {
    const Parameter& parameter = parameters.all()[i];
    if (parameter.spec.kind != StateKind::kBuffer) continue;
    const Tensor buffer = model.test().front()->parameter(static_cast<int>(i), parameters);
    if (communication.rank() != 0) RETURN_IF_ERROR(model.Clear(stream, buffer));
    RETURN_IF_ERROR(sum(stream, parameter.name(), buffer));
  }
  return stream.Synchronize();
}

}  // namespace

absl::Status RunTest(const Model& model, const Dataset& dataset, Device& device, Stream& stream,
                     ProcessGroup& communication, const TestSink& sink,
                     std::optional<int64_t> samples) {
  RETURN_IF_ERROR(model.BringHome(stream));
  // Batches arrive on another stream, in memory that training used.
  RETURN_IF_ERROR(stream.Synchronize());
  RETURN_IF_ERROR(ShareBuffers(model, device, stream, communication));
  const int64_t all = samples.value_or(model.plan().options.test_samples);
  int64_t position = 0;
  for (size_t n = 0; n < model.test().size(); ++n) {
    const auto& net = model.test()[n];
    const int64_t batch = net->plan().spec.shape.global;
    const int64_t batches = (all - position) / batch;
    RETURN_IF_ERROR(RunTestOf(*net, model.test_pager(n), position, batches, dataset, device, stream,
                              communication, sink));
    position += batches * batch;
  }
  return absl::OkStatus();
}

absl::StatusOr<TestResult> Evaluate(const Model& model, const Dataset& dataset, Device& device,
                                    Stream& stream, ProcessGroup& communication,
                                    const std::function<void(int64_t)>& progress,
                                    const TestSink& also, std::optional<int64_t> samples) {
  const int64_t all = samples.value_or(model.plan().options.test_samples);
  const NetSpec& spec = model.test().front()->plan().spec;
  TestResult result{.metrics = MetricsOf(spec)};
  TestRecords records(spec, all);
  RETURN_IF_ERROR(RunTest(
      model, dataset, device, stream, communication,
      [&](const TestedBatch& tested) {
        AddSums(tested.results.metrics().as<double>(), result.metrics);
        for (const Batch::FaultySample& fault : tested.batch.faults) {
          result.faults.push_back(fault.message);
        }
        const NetSpec& net = tested.net.plan().spec;
        for (int n = 0; n < static_cast<int>(net.nodes.size()); ++n) {
          const Tensor of_node = tested.results.records(n);
          if (of_node) records.Put(n, tested.batch.first_position, of_node);
        }
        if (progress) progress(tested.first + net.shape.global);
        return also ? also(tested) : absl::OkStatus();
      },
      all));
  int64_t left = all;
  for (const auto& net : model.test()) {
    const int64_t batch = net->plan().spec.shape.global;
    records.EndRun(batch, left / batch);
    left %= batch;
  }
  std::vector<double> sums;
  for (const Metric& m : result.metrics) sums.insert(sums.end(), {m.sum, m.count});
  sums.push_back(static_cast<double>(result.faults.size()));
  RETURN_IF_ERROR(communication.Sum("test metrics", sums));
  result.metrics = MetricsOf(spec);
  AddSums(sums.data(), result.metrics);
  result.bad_samples = static_cast<int64_t>(sums.back());
  for (const Tensor& of_node : records.all()) {
    RETURN_IF_ERROR(communication.Sum("test records", of_node));
  }
  records.Tell(result.metrics);
  return result;
}

absl::StatusOr<TestResult> EvaluateTraining(Model& model, const Dataset& dataset, Device& device,
                                            Stream& stream, ProcessGroup& communication,
                                            const std::function<void(int64_t)>& progress,
                                            std::optional<int64_t> samples) {
  const bool averages = model.has_averages();
  if (averages) RETURN_IF_ERROR(model.PutAverages(stream));
  absl::StatusOr<TestResult> tested =
      Evaluate(model, dataset, device, stream, communication, progress, /*also=*/nullptr, samples);
  // One rank's failure is not known to those that it would need.
  const bool alone = !model.plan().options.shape.shard_optimizer;
  if (averages && (tested.ok() || alone)) {
    RETURN_IF_ERROR(model.PutValuesBack(stream));
  }
  return tested;
}

}  // namespace gyre
