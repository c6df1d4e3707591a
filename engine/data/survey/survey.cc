#include "engine/data/survey/survey.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/pictures/picture.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Of a sample that could be read.
struct ContentDigest {
  uint64_t high = 0, low = 0;  // of the content
  uint64_t label = 0;
  SampleOfSet sample;

  auto content() const { return std::tie(high, low); }
};

std::pair<uint64_t, uint64_t> First16Bytes(Sha256Digest& digest) {
  const std::string hex = digest.Hex();
  std::pair<uint64_t, uint64_t> words;
  std::from_chars(hex.data(), hex.data() + 16, words.first, 16);
  std::from_chars(hex.data() + 16, hex.data() + 32, words.second, 16);
  return words;
}

const char* NameOfFormat(PictureFormat format) {
  switch (format) {
    case PictureFormat::kJpeg:
      return "JPEG ";
    case PictureFormat::kPng:
      return "PNG ";
    case PictureFormat::kWebp:
      return "WebP ";
    case PictureFormat::kOther:
      break;
  }
  return "another format";
}

// The class that a label is, or that a distribution has all of.
std::optional<int64_t> ClassOf(const Tensor& label) {
  if (label.elements() == 1 && label.dtype == DType::kI32) return *label.as<int32_t>();
  if (label.elements() == 1 && label.dtype == DType::kU8) return *label.as<uint8_t>();
  if (label.shape.rank() != 1 || label.elements() < 2 || label.dtype != DType::kF32) {
    return std::nullopt;
  }
  const std::span shares(label.as<float>(), static_cast<size_t>(label.elements()));
  const auto one = std::ranges::find(shares, 1.0F);
  const bool others = std::ranges::count(shares, 0.0F) + 1 == std::ssize(shares);
  return one != shares.end() && others ? std::optional(one - shares.begin()) : std::nullopt;
}

// What a thread has found in a set.
struct Tally {
  SetSurvey found;
  bool classes = true;  // so far each label is one
};

class SurveyThread {
 public:
  SurveyThread(std::span<const SurveyedSet> sets, const std::string& label_input)
      : sets_(sets), label_input_(label_input), tallies_(sets.size()) {}

  void Look(SampleOfSet sample) {
    ContentDigest digest{.sample = sample};
    Tally& tally = tallies_[sample.set];
    const absl::Status status = Read(*sets_[sample.set].dataset, sample.index, tally, digest);
    if (status.ok()) {
      digests_.push_back(digest);
    } else {
      tally.found.unreadable.push_back({sample.index, std::string(status.message())});
    }
  }

  // Adds what was found to `survey` and `digests`.
  void Give(Survey& survey, std::vector<bool>& classes, std::vector<ContentDigest>& digests) {
    digests.insert(digests.end(), digests_.begin(), digests_.end());
    for (size_t s = 0; s < sets_.size(); ++s) {
      SetSurvey& all = survey.sets[s];
      const SetSurvey& own = tallies_[s].found;
      classes[s] = classes[s] && tallies_[s].classes;
      for (const auto& [number, samples] : own.classes) all.classes[number] += samples;
      for (const auto& [kind, samples] : own.kinds) all.kinds[kind] += samples;
      for (const auto& [input, range] : own.reals) Widen(all, input, range);
      all.sizes.insert(all.sizes.end(), own.sizes.begin(), own.sizes.end());
      all.unreadable.insert(all.unreadable.end(), own.unreadable.begin(), own.unreadable.end());
    }
  }

 private:
  static void Widen(SetSurvey& set, const std::string& input, const ValueRange& by) {
    const auto [range, added] = set.reals.emplace(input, by);
    range->second.least = std::min(range->second.least, by.least);
    range->second.most = std::max(range->second.most, by.most);
  }

  absl::Status Read(const Dataset& dataset, int64_t index, Tally& tally, ContentDigest& digest) {
    ASSIGN_OR_RETURN(const std::string_view file, dataset.PictureFile(index, memory_));
    const bool is_picture = !file.empty();
    Sha256Digest content, label;
    content.Add(file);
    absl::StatusOr<PictureHeader> header;  // if it has none, dataset.Read tells
    if (is_picture) header = ReadPictureHeader(file, std::numeric_limits<int64_t>::max());
    bool is_class = true;
    std::optional<int64_t> number;
    for (size_t a = 0; a < dataset.arrays().size(); ++a) {
      const DataArray& array = dataset.arrays()[a];
      ASSIGN_OR_RETURN(const Tensor stored, dataset.Read(index, a, memory_, {}));
      RETURN_IF_ERROR(LookAtReals(dataset, index, array, stored, tally.found));
      const std::string_view bytes(static_cast<const char*>(stored.data), stored.bytes());
      if (array.input == label_input_) {
        label.Add(bytes);
        number = ClassOf(stored);
        is_class = number.has_value();
      } else if (!is_picture) {
        content.Add(bytes);
      }
    }
    // Read has met all pixels.  Of damage a JPEG may show only data that no pixel is made of.
    if (is_picture && header.ok() && header->format == PictureFormat::kJpeg) {
      ASSIGN_OR_RETURN(const std::string_view again, dataset.PictureFile(index, memory_));
      RETURN_IF_ERROR(Annotate(CheckPicture(again, *header, {}), dataset.Describe(index)));
    }
    if (number) ++tally.found.classes[*number];
    tally.classes = tally.classes && is_class;
    if (is_picture && header.ok()) {
      ++tally.found.kinds[absl::StrCat(NameOfFormat(header->format), header->kind)];
      tally.found.sizes.push_back({header->height, header->width});
    }
    std::tie(digest.high, digest.low) = First16Bytes(content);
    digest.label = First16Bytes(label).first;
    return absl::OkStatus();
  }

  static absl::Status LookAtReals(const Dataset& dataset, int64_t index, const DataArray& array,
                                  const Tensor& stored, SetSurvey& found) {
    const auto look = [&](const auto* values) -> absl::Status {
      const auto* const end = values + stored.elements();
      const auto* const bad = std::find_if(values, end, [](auto x) { return !std::isfinite(x); });
      if (bad != end) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: input \"%s\" holds %g", dataset.Describe(index), array.input, double{*bad}));
      }
      const auto [least, most] = std::minmax_element(values, end);
      Widen(found, array.input, {double{*least}, double{*most}});
      return absl::OkStatus();
    };
    if (stored.dtype == DType::kF32) return look(stored.as<float>());
    if (stored.dtype == DType::kF64) return look(stored.as<double>());
    return absl::OkStatus();
  }

  const std::span<const SurveyedSet> sets_;
  const std::string& label_input_;
  SampleMemory memory_;
  std::vector<Tally> tallies_;  // by set
  std::vector<ContentDigest> digests_;
};

// Of digests in any order.
std::vector<DuplicateSample> DuplicatesOf(std::vector<ContentDigest> digests, size_t sets) {
  std::ranges::sort(digests, {}, [](const ContentDigest& d) {
    return std::tuple(d.high, d.low, d.sample.set, d.sample.index);
  });
  std::vector<DuplicateSample> duplicates;
  for (auto group = digests.begin(); group != digests.end();) {
    const auto end = std::find_if(group, digests.end(), [&](const auto& other) {
      return other.content() != group->content();
    });
    // The earliest of each set, for those that follow.
    std::vector<const ContentDigest*> firsts(sets, nullptr);
    for (; group != end; ++group) {
      for (const ContentDigest* first : firsts) {
        if (first == nullptr) continue;
        duplicates.push_back({first->sample, group->sample, first->label != group->label});
      }
      const ContentDigest*& own = firsts[group->sample.set];
      if (own == nullptr) own = &*group;
    }
  }
  std::ranges::sort(duplicates, {}, [](const DuplicateSample& d) {
    return std::tuple(d.first.set, d.again.set, d.again.index);
  });
  return duplicates;
}

}  // namespace

bool Survey::sound() const {
  return std::ranges::all_of(sets, [](const SetSurvey& set) { return set.unreadable.empty(); }) &&
         std::ranges::all_of(duplicates, [](const DuplicateSample& pair) {
           return pair.first.set == pair.again.set;
         });
}

Survey SurveyOf(std::span<const SurveyedSet> sets, const SurveyOptions& options) {
  GYRE_CHECK(options.threads >= 1);
  Survey survey;
  int64_t all = 0;
  for (const SurveyedSet& set : sets) {
    survey.sets.emplace_back().samples = set.dataset->size();
    all += set.dataset->size();
  }
  std::mutex mutex;  // guards what follows
  std::condition_variable ended;
  int64_t next = 0, done = 0;
  int working = options.threads;
  std::deque<SurveyThread> workers;
  for (int i = 0; i < options.threads; ++i) workers.emplace_back(sets, options.label_input);
  const auto work = [&](SurveyThread& worker) {
    constexpr int64_t kRange = 16;  // some samples, so that the lock is seldom taken
    std::unique_lock lock(mutex);
    while (next < all) {
      const int64_t first = next, last = std::min(all, first + kRange);
      next = last;
      lock.unlock();
      for (int64_t i = first; i < last; ++i) {
        SampleOfSet sample{0, i};
        for (; sample.index >= sets[sample.set].dataset->size(); ++sample.set) {
          sample.index -= sets[sample.set].dataset->size();
        }
        worker.Look(sample);
      }
      lock.lock();
      done += last - first;
    }
    if (--working == 0) ended.notify_one();
  };
  std::vector<std::thread> threads;
  for (SurveyThread& worker : workers) threads.emplace_back(work, std::ref(worker));
  for (bool all_ended = false; !all_ended;) {
    constexpr std::chrono::milliseconds kBetween(200);
    std::unique_lock lock(mutex);
    all_ended = ended.wait_for(lock, kBetween, [&] { return working == 0; });
    const int64_t so_far = done;
    lock.unlock();
    if (options.progress) options.progress(so_far, all);
  }
  for (std::thread& thread : threads) thread.join();

  std::vector<bool> classes(sets.size(), true);
  std::vector<ContentDigest> digests;
  for (SurveyThread& worker : workers) worker.Give(survey, classes, digests);
  for (size_t s = 0; s < sets.size(); ++s) {
    SetSurvey& set = survey.sets[s];
    if (!classes[s]) set.classes.clear();
    std::ranges::sort(set.sizes, {}, [](const PictureSize& size) {
      return std::tuple(size.height * size.width, size.height, size.width);
    });
    std::ranges::sort(set.unreadable, {}, &UnreadableSample::index);
  }
  survey.duplicates = DuplicatesOf(std::move(digests), sets.size());
  return survey;
}

}  // namespace gyre
