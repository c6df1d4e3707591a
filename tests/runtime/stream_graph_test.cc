// sim = cpu, bit for bit: random graphs of calls, copies and events on several streams give the
// same bits on sim, with random delays, as run synchronously.  And the other way round: a graph
// that lacks one of its waits is caught, so the test would notice a Wait that does not wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

constexpr int kStreams = 4, kEvents = 3, kBuffers = 7, kOperations = 40;
constexpr int kPinned = 2;  // the first buffers are pinned host memory, the others device memory
constexpr size_t kWords = 33;

enum class Kind { kMix, kCopy, kRecord, kWait };

struct Node {
  Kind kind;
  int stream;
  int to = 0, from = 0;  // buffers
  int event = 0;
  uint64_t salt = 0;
};

// A stream's point in time is the number of operations enqueued on it.
struct Point {
  int stream = 0, time = 0;
};

// Enqueues random operations, each behind a wait for every stream whose work it depends on and that
// is not waited for already: no wait is redundant.
class GraphMaker {
 public:
  explicit GraphMaker(uint64_t seed) : random_(seed) {}

  std::vector<Node> Make() {
    for (int i = 0; i < kOperations; ++i) AddOperation();
    return std::move(nodes_);
  }

 private:
  int Below(int bound) { return std::uniform_int_distribution<int>(0, bound - 1)(random_); }

  void AddOperation() {
    const int stream = Below(kStreams), to = Below(kBuffers), from = Below(kBuffers);
    WaitFor(stream, written_[from]);
    WaitFor(stream, written_[to]);
    for (const Point& reader : readers_[to]) WaitFor(stream, reader);
    const Kind kind = to != from && Below(3) == 0 ? Kind::kCopy : Kind::kMix;
    nodes_.push_back(
        {.kind = kind, .stream = stream, .to = to, .from = from, .event = 0, .salt = random_()});
    const Point now = {stream, ++passed_[stream][stream]};
    written_[to] = now;
    readers_[to].clear();
    readers_[from].push_back(now);
  }

  void WaitFor(int stream, Point point) {
    if (passed_[stream][point.stream] >= point.time) return;
    const int event = Below(kEvents);
    nodes_.push_back(
        {.kind = Kind::kRecord, .stream = point.stream, .to = 0, .from = 0, .event = event});
    nodes_.push_back({.kind = Kind::kWait, .stream = stream, .to = 0, .from = 0, .event = event});
    for (int s = 0; s < kStreams; ++s) {
      passed_[stream][s] = std::max(passed_[stream][s], passed_[point.stream][s]);
    }
    // The event is used again at once: the wait must keep the record that it found.
    if (Below(2) == 0) {
      nodes_.push_back(
          {.kind = Kind::kRecord, .stream = Below(kStreams), .to = 0, .from = 0, .event = event});
    }
  }

  std::mt19937_64 random_;
  std::vector<Node> nodes_;
  int passed_[kStreams][kStreams] = {};  // [s][t]: how far s is known to be behind t's work
  Point written_[kBuffers];
  std::vector<Point> readers_[kBuffers];
};

// The graph without one of its waits, which `seed` picks.
std::vector<Node> WithoutAWait(std::vector<Node> nodes, uint64_t seed) {
  std::vector<size_t> waits;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].kind == Kind::kWait) waits.push_back(i);
  }
  nodes.erase(nodes.begin() + waits[seed % waits.size()]);
  return nodes;
}

void Mix(uint64_t* to, const uint64_t* from, uint64_t salt) {
  for (size_t i = 0; i < kWords; ++i) {
    to[i] = (to[i] ^ from[(i + 1) % kWords]) * 0x9E3779B97F4A7C15 + salt;
  }
}

// What is captured and then replayed.
enum class Captured { kNothing, kEachOperation, kAll };

// The other streams join, or are waited for.
void Fork(Device& device, std::span<const std::unique_ptr<Stream>> streams, bool join) {
  for (size_t s = 1; s < streams.size(); ++s) {
    const std::unique_ptr<Event> event = std::move(device.NewEvent()).value();
    EXPECT_TRUE(streams[join ? s : 0]->Record(*event).ok());
    EXPECT_TRUE(streams[join ? 0 : s]->Wait(*event).ok());
  }
}

// Runs the graph and returns the bytes of all buffers.
std::vector<uint64_t> RunGraph(Device& device, const std::vector<Node>& nodes,
                               Captured captured = Captured::kNothing) {
  std::vector<Buffer> buffers;
  std::vector<uint64_t*> words;
  for (int b = 0; b < kBuffers; ++b) {
    const MemoryKind kind = b < kPinned ? MemoryKind::kPinnedHost : MemoryKind::kDevice;
    buffers.push_back(std::move(Buffer::Allocate(device, kind, kWords * 8)).value());
    words.push_back(reinterpret_cast<uint64_t*>(buffers.back().data()));
  }
  std::vector<uint64_t> host(kBuffers * kWords);
  std::iota(host.begin(), host.end(), 1);
  const std::unique_ptr<Stream> copies = std::move(device.NewStream()).value();
  for (int b = 0; b < kBuffers; ++b) {
    EXPECT_TRUE(copies->Copy(words[b], &host[b * kWords], kWords * 8).ok());
  }
  EXPECT_TRUE(copies->Synchronize().ok());

  std::vector<std::unique_ptr<Event>> events;
  for (int e = 0; e < kEvents; ++e) events.push_back(std::move(device.NewEvent()).value());
  std::vector<std::unique_ptr<Stream>> streams;
  for (int s = 0; s < kStreams; ++s) streams.push_back(std::move(device.NewStream()).value());

  std::vector<std::unique_ptr<Graph>> graphs;
  if (captured == Captured::kAll) {
    EXPECT_TRUE(streams[0]->BeginCapture().ok());
    Fork(device, streams, /*join=*/false);
  }
  for (const Node& node : nodes) {
    Stream& stream = *streams[node.stream];
    const bool capture = captured == Captured::kEachOperation &&
                         (node.kind == Kind::kMix || node.kind == Kind::kCopy);
    if (capture) {
      EXPECT_TRUE(stream.BeginCapture().ok());
    }
    switch (node.kind) {
      case Kind::kMix:
        EXPECT_TRUE(stream
                        .Call([to = words[node.to], from = words[node.from], salt = node.salt] {
                          Mix(to, from, salt);
                          return absl::OkStatus();
                        })
                        .ok());
        break;
      case Kind::kCopy:
        EXPECT_TRUE(stream.Copy(words[node.to], words[node.from], kWords * 8 - 3).ok());
        break;
      case Kind::kRecord:
        EXPECT_TRUE(stream.Record(*events[node.event]).ok());
        break;
      case Kind::kWait:
        EXPECT_TRUE(stream.Wait(*events[node.event]).ok());
        break;
    }
    if (!capture) continue;
    graphs.push_back(std::move(stream.EndCapture()).value());
    EXPECT_TRUE(graphs.back()->Replay(stream).ok());
  }
  if (captured == Captured::kAll) {
    Fork(device, streams, /*join=*/true);
    graphs.push_back(std::move(streams[0]->EndCapture()).value());
    EXPECT_TRUE(graphs.back()->Replay(*streams[0]).ok());
    EXPECT_TRUE(streams[0]->Synchronize().ok());  // behind the others
  }
  for (const auto& stream : streams) EXPECT_TRUE(stream->Synchronize().ok());

  for (int b = 0; b < kBuffers; ++b) {
    EXPECT_TRUE(copies->Copy(&host[b * kWords], words[b], kWords * 8).ok());
  }
  EXPECT_TRUE(copies->Synchronize().ok());
  return host;
}

TEST(StreamGraphTest, SimGivesTheBitsOfTheSynchronousRun) {
  const std::unique_ptr<Device> cpu = NewCpuDevice({});
  for (uint64_t seed = 1; seed <= (kSanitized ? 100 : 1000); ++seed) {
    const std::vector<Node> graph = GraphMaker(seed).Make();
    const std::unique_ptr<Device> sim =
        NewSimDevice({.copy_bytes_per_s = seed % 5 == 0 ? 5e6 : 0, .delay_seed = seed});
    ASSERT_EQ(RunGraph(*sim, graph, static_cast<Captured>(seed % 3)), RunGraph(*cpu, graph))
        << "seed " << seed;
  }
}

TEST(StreamGraphTest, AMissingWaitIsCaught) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the graph races on purpose";
#endif
  const std::unique_ptr<Device> cpu = NewCpuDevice({});
  constexpr int kSeeds = 100;
  for (const Captured captured : {Captured::kNothing, Captured::kAll}) {
    int caught = 0;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      const std::vector<Node> graph = GraphMaker(seed).Make();
      const std::unique_ptr<Device> sim = NewSimDevice({.delay_seed = seed});
      caught += RunGraph(*sim, WithoutAWait(graph, seed), captured) != RunGraph(*cpu, graph);
    }
    EXPECT_GE(caught, kSeeds / 10);  // of single runs; about half are seen
    printf("%d of %d graphs without one wait gave other bits\n", caught, kSeeds);
  }
}

}  // namespace
}  // namespace gyre
