// parameter_server_case.h: random tables and accesses of a parameter server, and a rank that runs
// through them, for parameter_server_*test.cc.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/parameter_server/parameter_server.h"
#include "distributed/process_group.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {

inline constexpr double kFactor = -0.125;

// One access of a worker.
struct AccessCase {
  bool update = false;
  int table = 0;
  std::vector<int64_t> rows;
};

struct Case {
  int ranks = 1;
  ParameterServer::Options options = {};
  std::vector<TableSpec> tables;
  std::vector<std::vector<AccessCase>> accesses;  // by rank
  int iterations = 1;
  bool has_first_values = false;  // FirstValue; else zeros
  int workers() const { return ranks - options.servers; }
};

// Of an element of a table.
inline double FirstValue(int64_t element) { return static_cast<double>(element % 13 - 6) / 8; }

inline std::vector<int64_t> RandomRows(std::mt19937& random, int64_t rows, bool distinct) {
  std::vector<int64_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  if (rows == 0 || random() % 4 == 0) return all;
  std::ranges::shuffle(all, random);
  all.resize(random() % all.size() + (random() % 8 == 0 ? 0 : 1));
  if (random() % 2 == 0) std::ranges::sort(all);
  if (!distinct && !all.empty()) all.push_back(all.front());
  return all;
}

inline Case RandomCase(uint32_t seed) {
  std::mt19937 random(seed);
  Case made;
  made.ranks = std::vector<int>{1, 2, 3, 5}[random() % 4];
  made.options.servers = random() % 2 == 0 ? 0 : static_cast<int>(random() % made.ranks);
  made.iterations = 1 + static_cast<int>(random() % 6);
  if (random() % 4 > 0) made.options.chunk_bytes = 1 + random() % 100;
  made.has_first_values = random() % 4 > 0;
  const int tables = 1 + static_cast<int>(random() % 3);
  for (int t = 0; t < tables; ++t) {
    made.tables.push_back({.name = absl::StrCat("t", t),
                           .rows = static_cast<int64_t>(random() % 24),
                           .width = static_cast<int64_t>(random() % 5),
                           .dtype = std::vector<DType>{DType::kF32, DType::kF64, DType::kF16,
                                                       DType::kBF16}[random() % 4]});
    const bool narrows = made.tables.back().dtype == DType::kF32 && random() % 2 == 0;
    if (narrows) made.tables.back().wire = random() % 2 == 0 ? DType::kF16 : DType::kBF16;
  }
  made.accesses.resize(made.ranks);
  for (int worker = 0; worker < made.workers(); ++worker) {
    for (int t = 0; t < tables; ++t) {
      const int accesses = static_cast<int>(random() % 5);
      for (int a = 0; a < accesses; ++a) {
        const bool update = random() % 2 == 0;
        made.accesses[worker].push_back(
            {update, t, RandomRows(random, made.tables[t].rows, /*distinct=*/update)});
      }
    }
  }
  return made;
}

// Any cut of each table.
inline void GiveParts(Case& of, uint32_t seed) {
  std::mt19937 random(seed);
  for (TableSpec& table : of.tables) {
    std::vector<int64_t> ends = {table.rows};
    for (int r = 1; r < of.ranks; ++r) {
      ends.push_back(static_cast<int64_t>(random() % (table.rows + 1)));
    }
    std::ranges::sort(ends);
    for (int64_t begin = 0; const int64_t end : ends) {
      table.parts.push_back({begin, end});
      begin = end;
    }
  }
}

inline double Element(const Tensor& tensor, int64_t i) {
  return VisitReal(tensor.dtype,
                   [&]<typename T>() { return static_cast<double>(tensor.as<T>()[i]); });
}

inline void SetElement(const Tensor& tensor, int64_t i, double value) {
  VisitReal(tensor.dtype, [&]<typename T>() {
    tensor.as<T>()[i] = static_cast<T>(static_cast<AccumulateType<T>>(value));
  });
}

// What a worker makes of what it has read.
inline double Gradient(double read, int worker, int64_t iteration, size_t access, int64_t i) {
  std::mt19937 random(static_cast<uint32_t>(worker * 7919 + iteration * 104729 +
                                            static_cast<int64_t>(access) * 31 + i));
  return read * 0.03 + static_cast<double>(random() % 1000) / 997.0 - 0.5;
}

using Values = std::vector<std::vector<double>>;  // by table

// Gated, a sum is left out of which an odd number of elements are above 0, all tables taken
// together.
inline int64_t CountPositive(const Tensor& sum) {
  int64_t count = 0;
  for (int64_t i = 0; i < sum.elements(); ++i) count += Element(sum, i) > 0 ? 1 : 0;
  return count;
}

// What NewAddition makes of a sum, unless it is left out.
class Gated final : public TableUpdate {
 public:
  absl::Status Apply(Stream& stream, const OwnedRows& rows, RowIndices places, Tensor sent,
                     int64_t clock) const override {
    return leaves_out ? absl::OkStatus() : addition_->Apply(stream, rows, places, sent, clock);
  }
  bool leaves_out = false;

 private:
  const std::unique_ptr<TableUpdate> addition_ = NewAddition(kFactor);
};

// The iterations of `bsp`, in plain memory.
inline Values InPlainMemory(const Case& of) {
  Values values;
  for (const TableSpec& table : of.tables) {
    std::vector<double>& first = values.emplace_back(table.rows * table.width);
    for (size_t i = 0; of.has_first_values && i < first.size(); ++i) first[i] = FirstValue(i);
  }
  const auto wide = [&](int table, double x) {
    return of.tables[table].dtype == DType::kF64 ? x : static_cast<float>(x);
  };
  const auto round_to = [](DType dtype, double x) {
    return VisitReal(dtype, [&]<typename T>() {
      return static_cast<double>(static_cast<T>(static_cast<AccumulateType<T>>(x)));
    });
  };
  const auto round = [&](int table, double x) { return round_to(of.tables[table].dtype, x); };
  const auto send = [&](int table, double x) {
    return round_to(of.tables[table].wire_type(), round(table, x));
  };
  for (int64_t iteration = 0; iteration < of.iterations; ++iteration) {
    Values sums;
    for (const auto& table : values) sums.emplace_back(table.size());
    for (int worker = 0; worker < of.workers(); ++worker) {
      double read = 0;
      for (const AccessCase& access : of.accesses[worker]) {
        const int64_t width = of.tables[access.table].width;
        for (size_t i = 0; !access.update && i < access.rows.size(); ++i) {
          for (int64_t c = 0; c < width; ++c) {
            read += values[access.table][access.rows[i] * width + c];
          }
        }
      }
      for (size_t a = 0; a < of.accesses[worker].size(); ++a) {
        const AccessCase& access = of.accesses[worker][a];
        const int64_t width = of.tables[access.table].width;
        for (size_t i = 0; access.update && i < access.rows.size() * width; ++i) {
          double& sum = sums[access.table][access.rows[i / width] * width + i % width];
          const double gradient =
              send(access.table, Gradient(read, worker, iteration, a, static_cast<int64_t>(i)));
          sum = wide(access.table, sum + gradient);
        }
      }
    }
    int64_t positive = 0;
    for (int t = 0; auto& table : sums) {
      for (double& sum : table) sum = send(t, sum);
      ++t;
      positive += std::ranges::count_if(table, [](double x) { return x > 0; });
    }
    if (of.options.gated && positive % 2 == 1) continue;
    for (size_t t = 0; t < values.size(); ++t) {
      for (size_t i = 0; i < values[t].size(); ++i) {
        const int table = static_cast<int>(t);
        values[t][i] = round(table, values[t][i] + wide(table, kFactor * sums[t][i]));
      }
    }
  }
  return values;
}

struct DeviceCase {
  DeviceKind kind = DeviceKind::kCpu;
  uint64_t seed = 0;  // of delays
  bool rows_on_host = false;
  bool background = true;
};

inline std::unique_ptr<Device> NewDevice(const DeviceCase& of, int rank) {
  if (of.kind == DeviceKind::kCpu) return NewCpuDevice({});
  return NewSimDevice(
      {.capacity_bytes = 32 << 20, .delay_seed = of.seed == 0 ? 0 : of.seed * 100 + rank});
}

// A rank's run through the iterations; each step is enqueued, none is waited for.
class Worker {
 public:
  Worker(const Case& of, ProcessGroup& group, Device& device)
      : case_(of), group_(group), device_(device), stream_(*device.NewStream()) {}

  ~Worker() { stream_->Synchronize().IgnoreError(); }

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(server_, ParameterServer::Create(group_, device_, *stream_, case_.options));
    for (const TableSpec& table : case_.tables) {
      RETURN_IF_ERROR(server_->AddTable(table, update_).status());
    }
    for (const AccessCase& access : case_.accesses[group_.rank()]) {
      const TableSpec& table = case_.tables[access.table];
      const Shape shape({static_cast<int64_t>(access.rows.size()), table.width});
      Tensor memory{nullptr, shape, table.dtype};
      ASSIGN_OR_RETURN(Buffer buffer,
                       Buffer::Allocate(device_, MemoryKind::kDevice, memory.bytes()));
      memory.data = buffer.data();
      buffers_.push_back(std::move(buffer));
      memory_.push_back(memory);
      const RowList rows = RowList::Of(access.rows);
      ASSIGN_OR_RETURN(const int number, access.update
                                             ? server_->AddUpdate(access.table, rows, memory)
                                             : server_->AddRead(access.table, rows, memory));
      numbers_.push_back(number);
    }
    RETURN_IF_ERROR(server_->Prepare());
    for (size_t t = 0; case_.has_first_values && t < case_.tables.size(); ++t) {
      const OwnedRows& rows = server_->owned(static_cast<int>(t));
      RETURN_IF_ERROR(stream_->Call([&rows] {
        for (int64_t i = 0; i < rows.values.elements(); ++i) {
          SetElement(rows.values, i, FirstValue(rows.first * rows.width + i));
        }
        return absl::OkStatus();
      }));
    }
    return server_->Start();
  }

  absl::Status Iterate() {
    const int worker = group_.rank();
    const auto& accesses = case_.accesses[worker];
    const int64_t iteration = server_->clock();
    for (size_t a = 0; a < accesses.size(); ++a) {
      if (!accesses[a].update) RETURN_IF_ERROR(server_->Read(numbers_[a]));
    }
    const auto sum = [this, &accesses] {
      double read = 0;
      for (size_t a = 0; a < accesses.size(); ++a) {
        for (int64_t i = 0; !accesses[a].update && i < memory_[a].elements(); ++i) {
          read += Element(memory_[a], i);
        }
      }
      return read;
    };
    RETURN_IF_ERROR(stream_->Call([this, sum] {
      read_ = sum();
      return absl::OkStatus();
    }));
    for (size_t a = 0; a < accesses.size(); ++a) {
      if (!accesses[a].update) continue;
      RETURN_IF_ERROR(server_->PreUpdate(numbers_[a]));
      RETURN_IF_ERROR(stream_->Call([this, a, worker, iteration] {
        for (int64_t i = 0; i < memory_[a].elements(); ++i) {
          SetElement(memory_[a], i, Gradient(read_, worker, iteration, a, i));
        }
        return absl::OkStatus();
      }));
      RETURN_IF_ERROR(server_->Update(numbers_[a]));
      RETURN_IF_ERROR(UseOtherwise(a));
    }
    RETURN_IF_ERROR(stream_->Call([this, sum] {
      return sum() == read_ ? absl::OkStatus() : absl::DataLossError("has changed too early");
    }));
    for (size_t a = 0; a < accesses.size(); ++a) {
      if (accesses[a].update) continue;
      RETURN_IF_ERROR(server_->PostRead(numbers_[a]));
      RETURN_IF_ERROR(UseOtherwise(a));
    }
    if (case_.options.gated) RETURN_IF_ERROR(PassGate());
    return server_->Clock();
  }

  // An access's memory, where it is the caller's.
  absl::Status UseOtherwise(size_t access) {
    return case_.options.background ? absl::OkStatus() : Fill(access, -99);
  }

  absl::Status Fill(size_t access, double value) {
    return stream_->Call([&memory = memory_[access], value] {
      for (int64_t i = 0; i < memory.elements(); ++i) SetElement(memory, i, value);
      return absl::OkStatus();
    });
  }

  absl::Status PassGate() {
    RETURN_IF_ERROR(server_->AwaitSums());
    double positive = 0;
    RETURN_IF_ERROR(stream_->Call([this, &positive] {
      for (size_t t = 0; t < case_.tables.size(); ++t) {
        positive += CountPositive(server_->sum(static_cast<int>(t)));
      }
      return absl::OkStatus();
    }));
    RETURN_IF_ERROR(stream_->Synchronize());
    RETURN_IF_ERROR(group_.Sum("positive sums", std::span(&positive, 1)));
    update_.leaves_out = static_cast<int64_t>(positive) % 2 == 1;
    return server_->Apply();
  }

  absl::StatusOr<Values> Get() {
    Values values;
    for (size_t t = 0; t < case_.tables.size(); ++t) {
      const TableSpec& table = case_.tables[t];
      std::vector<std::byte> bytes(static_cast<size_t>(table.rows) * table.row_bytes());
      RETURN_IF_ERROR(server_->Get(static_cast<int>(t), bytes.data()));
      const Tensor all{bytes.data(), Shape({table.rows, table.width}), table.dtype};
      std::vector<double>& of = values.emplace_back();
      for (int64_t i = 0; i < all.elements(); ++i) of.push_back(Element(all, i));
    }
    return values;
  }

  ParameterServer& server() { return *server_; }
  Stream& stream() { return *stream_; }
  Tensor memory(int access) const { return memory_[access]; }
  double read_ = 0;  // the stream's

 private:
  const Case& case_;
  ProcessGroup& group_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  Gated update_;
  std::vector<Buffer> buffers_;
  std::vector<Tensor> memory_;
  std::vector<int> numbers_;
  std::unique_ptr<ParameterServer> server_;
};

}  // namespace gyre
