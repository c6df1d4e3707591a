// ring.cc: the bandwidth-optimal sum: scatter-reduce round a ring, then allgather.
//
// Its steps are pipelined in segments: a segment is passed on as soon as it has been added, while
// the next ones are on the wire.  The host adds and measures at once, a device on a stream of its
// own while other messages travel.

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "distributed/collectives/algorithms/algorithms.h"
#include "distributed/collectives/device_reduction.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {
namespace {

// Of the host: large enough that a message's latency (1 us within a host, 10 us over TCP) is little
// beside its transfer (13 us at 10 GB/s, 1 ms at 1 Gbit/s); small enough that a window of four
// stays in a core's L2 cache (1 to 2 MB) between arrival and addition, and that a chunk of the
// usual bucket has several in flight.  Above 256 KB, Open MPI's TCP halves its speed.
constexpr size_t kHostSegmentBytes = 128 << 10;

// Large enough that starting a kernel or two and polling an event (10 us) hides under its transfer
// (20 us at 12.5 GB/s, 100 Gbit/s); small enough to be pipelined, and that an urgent sum does not
// wait long for what has been posted of others.
constexpr size_t kDeviceSegmentBytes = 256 << 10;

// Of the room that a message needs where tensors of up to `bytes` are summed.  The longest chunk
// may be an element longer than the mean.  A multiple of the widest element, which keeps every
// dtype aligned, and of what a GPU reads at once.
size_t SlotBytes(size_t segment_bytes, size_t bytes, int ranks) {
  if (ranks == 1) return 0;
  const size_t longest_chunk = bytes / ranks + sizeof(double);
  return (std::min(segment_bytes, longest_chunk) + 255) / 256 * 256;
}

// The ring goes through all ranks of a host before the next, so that a link between hosts is
// crossed once each way, however the ranks are placed.  Where each host's ranks are consecutive,
// that is their order; so the numbers below are places in the ring, and chunk c is the part of the
// rank at place c.
//
// With n ranks the tensor is cut into n chunks, a chunk into m segments.  In step s of 2(n-1), rank
// r sends chunk r-1-s (mod n) to rank r+1 and receives chunk r-2-s from rank r-1:
//
//   scatter-reduce  s <  n-1: what arrives is added.  After it rank r has all of chunk r summed.
//   allgather       s >= n-1: what arrives is final.  After a chunk's segments comes its
//                             sum of squares, so each rank can add up the same n numbers.
//
// What is sent in step s+1 is what arrived in step s, so both directions are one sequence of
// messages, and the rule of the pipeline is: a message may go when its predecessor one step back
// has arrived and been added.  A message's position in that sequence is s * (m+1) + segment, the
// segment m being the sum of squares (positions of scatter-reduce that would have it are skipped).
//
// Cost: 2(n-1) steps of latency; 2(n-1)/n S + 8(n-1) bytes sent and received by a rank.
// Chunk c is summed as ((x[c+1] + x[c+2]) + ...) + x[c], ranks counted mod n.
// Source: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations"; segments as in Gloo's allreduce.
class Ring : public Collective {
 public:
  // Of host memory, with room for full segments from the start.
  Ring(Communicator& communicator, int tag) : Ring(communicator, tag, kHostSegmentBytes) {
    slot_bytes_ = segment_bytes_;
    slots_ = Staging(kWindow * slot_bytes_);
  }

 protected:
  Ring(Communicator& communicator, int tag, size_t segment_bytes)
      : Collective(communicator, tag),
        segment_bytes_(segment_bytes),
        order_(HostByHost(communicator.hosts())),
        place_(static_cast<int>(std::ranges::find(order_, rank_) - order_.begin())) {}

  // Messages under way in each direction, and those that are received and not yet added: one is
  // moved, one is added, and the others keep the link busy across a late wake-up.
  static constexpr int kWindow = 4;

  // Where a message's bytes are.
  struct RingMessage {
    int chunk;              // by the rank whose part it is
    ElementRange elements;  // of the tensor; unused by a sum of squares
    bool is_partial;
  };
  void* Address(const RingMessage& message);
  bool adds() const { return ranks_ > 1; }
  // Whether what is added to it is the last.
  bool measures(const RingMessage& message) const { return message.chunk == rank_; }

  absl::Status Begin() override;
  // Begins to add the slot to the message's elements, if this adds(), and to measure these.
  virtual absl::Status StartWork(int slot, const RingMessage& message);
  // Returns true once that work is done, and its measure is in partials_.  Never blocks.
  virtual absl::StatusOr<bool> FinishWork(int) { return true; }

  std::byte* Slot(int slot) const { return slots_ + slot * slot_bytes_; }

  const size_t segment_bytes_;
  std::byte* slots_ = nullptr;  // kWindow of slot_bytes_
  size_t slot_bytes_ = 0;
  std::vector<double> partials_;  // by chunk

 private:
  absl::StatusOr<Advance> Step() override;

  static std::vector<int> HostByHost(const std::vector<int>& hosts);
  int RankAt(int64_t place) const { return order_[static_cast<size_t>(place % ranks_)]; }
  bool InScatter(int64_t position) const { return position < gather_begin_; }
  int64_t Next(int64_t position) const;
  // Of the message that this rank sends at `position`, or that it receives (one chunk further).
  RingMessage MessageAt(int64_t position, bool is_send) const;
  size_t Bytes(const RingMessage& message) const;
  bool MaySend() const;
  bool MayReceive() const;
  absl::Status PostSend();
  absl::Status PostReceive();
  // Each returns whether it did anything.
  absl::StatusOr<bool> Communicate();
  absl::StatusOr<bool> FinishAll();

  const std::vector<int> order_;        // ranks, by place in the ring
  const int place_;                     // this rank's
  int64_t segment_elements_ = 0;        // of a full segment
  int64_t segments_ = 0;                // m, of a chunk
  int64_t gather_begin_ = 0, end_ = 0;  // positions
  // Positions: the next to post, and the oldest under way; of what was received (received_ is the
  // oldest that has not arrived), done means added.
  int64_t send_posted_ = 0, send_done_ = 0;
  int64_t receive_posted_ = 0, received_ = 0, receive_done_ = 0;
  std::array<Request, kWindow> sends_{}, receives_{};  // by position % kWindow
};

std::vector<int> Ring::HostByHost(const std::vector<int>& hosts) {
  std::vector<int> order(hosts.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int rank) { return hosts[rank]; });
  return order;
}

absl::Status Ring::Begin() {
  if (operation_ == Operation::kBroadcast) return Lacks();
  const int64_t longest_chunk = EqualPart(tensor_.elements(), ranks_, 0).count();
  segment_elements_ = static_cast<int64_t>(segment_bytes_) / size_;
  segments_ = std::max<int64_t>(1, (longest_chunk + segment_elements_ - 1) / segment_elements_);
  gather_begin_ = adds() ? (ranks_ - 1) * (segments_ + 1) : segments_;
  const bool scatters = operation_ != Operation::kAllgather;
  const bool gathers = operation_ != Operation::kReduceScatter && adds();
  const int64_t begin = scatters ? 0 : gather_begin_;
  end_ = gathers ? 2 * gather_begin_ : gather_begin_;
  send_posted_ = send_done_ = receive_posted_ = received_ = receive_done_ = begin;
  if (!adds()) send_posted_ = send_done_ = receive_posted_ = end_;  // nobody to send to
  partials_.assign(ranks_, {});
  return absl::OkStatus();
}

absl::StatusOr<Advance> Ring::Step() {
  ASSIGN_OR_RETURN(const bool moved, Communicate());
  ASSIGN_OR_RETURN(const bool finished, FinishAll());
  if (receive_done_ < end_ || send_done_ < end_) {
    return moved || finished ? Advance::kMoved : Advance::kWaiting;
  }
  for (const double partial : partials_) squares_ += partial;
  return Advance::kDone;
}

absl::StatusOr<bool> Ring::Communicate() {
  bool moved = false;
  // Post first: while a segment is being added, the next ones travel.
  while (MayReceive()) {
    RETURN_IF_ERROR(PostReceive());
    moved = true;
  }
  while (MaySend()) {
    RETURN_IF_ERROR(PostSend());
    moved = true;
  }
  while (send_done_ < send_posted_) {
    ASSIGN_OR_RETURN(const bool done, Test(sends_[send_done_ % kWindow]));
    if (!done) break;
    send_done_ = Next(send_done_);
    moved = true;
  }
  if (received_ == (adds() ? receive_posted_ : std::min(end_, receive_done_ + kWindow))) {
    return moved;
  }
  // One a pass, so that the thread stays ready to abort.
  const int slot = static_cast<int>(received_ % kWindow);
  if (adds()) {
    ASSIGN_OR_RETURN(const bool arrived, Test(receives_[slot]));
    if (!arrived) return moved;
  }
  if (InScatter(received_)) {
    RETURN_IF_ERROR(StartWork(slot, MessageAt(received_, /*is_send=*/false)));
  }
  received_ = Next(received_);
  return true;
}

absl::Status Ring::StartWork(int slot, const RingMessage& message) {
  void* const data = Address(message);
  const int64_t count = message.elements.count();
  if (!adds()) {
    partials_[rank_] += Measure(tensor_.dtype, data, count);
  } else if (measures(message)) {
    partials_[rank_] += AddToAndMeasure(tensor_.dtype, data, Slot(slot), count);
  } else {
    AddTo(tensor_.dtype, data, Slot(slot), count);
  }
  return absl::OkStatus();
}

// In the order of positions, so that what is measured is added up in that order.
absl::StatusOr<bool> Ring::FinishAll() {
  bool finished = false;
  while (receive_done_ < received_) {
    if (InScatter(receive_done_)) {
      ASSIGN_OR_RETURN(const bool done, FinishWork(static_cast<int>(receive_done_ % kWindow)));
      if (!done) break;
    }
    receive_done_ = Next(receive_done_);
    finished = true;
  }
  return finished;
}

int64_t Ring::Next(int64_t position) const {
  ++position;
  const bool skipped = InScatter(position) && position % (segments_ + 1) == segments_;
  return skipped ? position + 1 : position;
}

Ring::RingMessage Ring::MessageAt(int64_t position, bool is_send) const {
  const int64_t step = position / (segments_ + 1), segment = position % (segments_ + 1);
  const int chunk = RankAt(place_ - (is_send ? 1 : 2) - step + 3 * int64_t{ranks_});
  return {chunk,
          FixedPart(EqualPart(tensor_.elements(), ranks_, chunk), segment_elements_, segment),
          segment == segments_};
}

void* Ring::Address(const RingMessage& message) {
  if (message.is_partial) return &partials_[message.chunk];
  return static_cast<std::byte*>(tensor_.data) + message.elements.begin * size_;
}

size_t Ring::Bytes(const RingMessage& message) const {
  if (message.is_partial) return sizeof(double);
  return message.elements.count() * size_;
}

// A send may be done long before it has arrived, up to megabytes before over TCP.  What has come
// from the other neighbour tells how far the ring is: no rank runs ahead of it by more than a
// window, so that what is more urgent has little to wait for.
bool Ring::MaySend() const {
  const bool arrived = receive_done_ > send_posted_ - (segments_ + 1);
  const bool in_window = send_posted_ < std::min(send_done_, receive_done_) + kWindow;
  return send_posted_ < end_ && arrived && in_window;
}

// In allgather a segment is received where it was sent from one round of the ring before.  It
// cannot come before that send has reached the next rank, but the memory is MPI's until it says so.
bool Ring::MayReceive() const {
  const bool vacated = InScatter(receive_posted_) || send_done_ > receive_posted_ - gather_begin_;
  return receive_posted_ < end_ && vacated && receive_posted_ < receive_done_ + kWindow;
}

absl::Status Ring::PostSend() {
  const RingMessage message = MessageAt(send_posted_, /*is_send=*/true);
  ASSIGN_OR_RETURN(sends_[send_posted_ % kWindow],
                   Post(RequestKind::kSend, Address(message), Bytes(message), RankAt(place_ + 1)));
  send_posted_ = Next(send_posted_);
  return absl::OkStatus();
}

absl::Status Ring::PostReceive() {
  const RingMessage message = MessageAt(receive_posted_, /*is_send=*/false);
  const int slot = static_cast<int>(receive_posted_ % kWindow);
  void* const to = InScatter(receive_posted_) ? Slot(slot) : Address(message);
  ASSIGN_OR_RETURN(receives_[slot],
                   Post(RequestKind::kReceive, to, Bytes(message), RankAt(place_ + ranks_ - 1)));
  receive_posted_ = Next(receive_posted_);
  return absl::OkStatus();
}

// The communicator moves the device's memory.
class DeviceRing final : public Ring {
 public:
  DeviceRing(Communicator& communicator, int tag, Device& device)
      : Ring(communicator, tag, kDeviceSegmentBytes), device_(device) {}
  ~DeviceRing() override { Abandon(); }

  absl::Status Open() {
    ASSIGN_OR_RETURN(stream_, device_.NewStream());
    ASSIGN_OR_RETURN(measured_,
                     Buffer::Allocate(device_, MemoryKind::kPinnedHost, kWindow * sizeof(double)));
    for (auto& event : finished_) {
      ASSIGN_OR_RETURN(event, device_.NewEvent());
    }
    return absl::OkStatus();
  }
  void Abandon() override {
    if (stream_ != nullptr) (void)stream_->Synchronize();  // its error has been returned
  }
  static size_t MemoryBytes(size_t slot_bytes) {
    return kWindow * (sizeof(DeviceMeasure) + slot_bytes);
  }

 private:
  // Makes room, in place of a smaller one, for slots and then a measure for each.
  absl::Status Begin() override {
    RETURN_IF_ERROR(Ring::Begin());
    const size_t needed = SlotBytes(segment_bytes_, tensor_.bytes(), ranks_);
    if (slots_ != nullptr && slot_bytes_ >= needed) return absl::OkStatus();
    memory_ = {};
    ASSIGN_OR_RETURN(memory_, Buffer::Allocate(device_, MemoryKind::kDevice, MemoryBytes(needed)));
    slots_ = memory_.data();
    slot_bytes_ = needed;
    return absl::OkStatus();
  }

  absl::Status StartWork(int slot, const RingMessage& message) override {
    void* const data = Address(message);
    const int64_t count = message.elements.count();
    if (adds()) {
      RETURN_IF_ERROR(EnqueueAdd(*stream_, tensor_.dtype, data, Slot(slot), count));
    }
    measures_slot_[slot] = measures(message);
    if (measures_slot_[slot]) {
      auto* const measure = reinterpret_cast<DeviceMeasure*>(Slot(kWindow)) + slot;
      RETURN_IF_ERROR(EnqueueMeasure(*stream_, tensor_.dtype, data, count, measure));
      RETURN_IF_ERROR(stream_->Copy(Measured(slot), &measure->total, sizeof(double)));
    }
    return stream_->Record(*finished_[slot]);
  }

  absl::StatusOr<bool> FinishWork(int slot) override {
    ASSIGN_OR_RETURN(const bool done, finished_[slot]->Done());
    if (done && measures_slot_[slot]) partials_[rank_] += *Measured(slot);
    return done;
  }

  double* Measured(int slot) { return reinterpret_cast<double*>(measured_.data()) + slot; }

  Device& device_;
  Buffer memory_;    // the device's
  Buffer measured_;  // pinned
  std::array<bool, kWindow> measures_slot_{};
  std::array<std::unique_ptr<Event>, kWindow> finished_;
  std::unique_ptr<Stream> stream_;  // last: it works in the memory above
};

}  // namespace

std::unique_ptr<Collective> NewMessageRing(Communicator& communicator, int tag) {
  return std::make_unique<Ring>(communicator, tag);
}

absl::StatusOr<std::unique_ptr<Collective>> NewDeviceRing(Communicator& communicator, int tag,
                                                          Device& device) {
  auto ring = std::make_unique<DeviceRing>(communicator, tag, device);
  RETURN_IF_ERROR(ring->Open());
  return ring;
}

size_t DeviceRingBytes(size_t bytes, int ranks) {
  return DeviceRing::MemoryBytes(SlotBytes(kDeviceSegmentBytes, bytes, ranks));
}

}  // namespace gyre
