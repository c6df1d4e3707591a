// make_reviews: made-up reviews of films, for the data set `reviews`.
//
// A review is sentences of a grammar.  Most say what the writer thinks, with words of its class,
// or with words of the other class and a negation; some tell what others thought, which is as often
// the opposite.  A bag of words sees both kinds of words in both classes.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"
#include "engine/runtime/random.h"
#include "tools/command_line/flag_values.h"
#include "tools/data/made_data.h"

ABSL_FLAG(std::string, out, "", "Folder to make.  It must not exist.");
ABSL_FLAG(int, train, 2000, "Training reviews, half of each class.");
ABSL_FLAG(int, test, 1000, "Test reviews, half of each class.");
ABSL_FLAG(double, negated, 0.35,
          "Share of a writer's judgements that negate the opposite, 0 to 1.");
ABSL_FLAG(double, sentences, 8, "Median number of a review's sentences, 1 to 1000.");
ABSL_FLAG(int, seed, 1, "Seed of all random numbers.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "writes made-up reviews, synthetic and of no film.\n"
    "\n"
    "  make_reviews --out=runs/data/reviews\n"
    "  make_reviews --out=runs/data/hard --negated=0.5 --seed=7\n"
    "\n"
    "A net learns opinions from them. DIR/train has a file a review in a folder a\n"
    "class, such as pos/0.txt. DIR/train.tsv has the same reviews, as lines LABEL TAB\n"
    "TEXT. DIR/test and DIR/test.tsv are alike. A trainer reads reviews by\n"
    "  data { train { reviews { folder: \"runs/data/reviews/train\" length: 128 } }\n"
    "    test { reviews { folder: \"runs/data/reviews/test\" } } order: BUCKETED }\n"
    "The same flags give the same bytes.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"out", "train", "test", "negated", "sentences", "seed"}},
};

using Words = std::vector<const char*>;

const Words kThings = {"film",     "plot",        "cast",       "ending",   "score",
                       "dialogue", "camera work", "story",      "director", "humor",
                       "pace",     "script",      "first hour", "villain"};
const Words kGood = {"brilliant", "moving", "funny",     "gripping", "charming", "clever",
                     "superb",    "fresh",  "memorable", "elegant",  "honest",   "rewarding"};
const Words kBad = {"dull",  "clumsy",   "boring", "predictable", "awful", "shallow",
                    "messy", "annoying", "stale",  "pointless",   "weak",  "tedious"};
const Words kVery = {"", "very ", "quite ", "truly ", "rather ", "at times ", "surprisingly "};
const Words kOthers = {"the critics", "my brother", "everyone", "the poster", "the trailer"};
const Words kFacts = {"it runs for two hours.",
                      "we saw it on a rainy tuesday.",
                      "it is set in a small town by the sea.",
                      "the second half takes place ten years later.",
                      "there are three songs in it.",
                      "I had read the book before.",
                      "it was shot in black and white."};

class Writer {
 public:
  explicit Writer(uint64_t key) : numbers_(key) {}

  std::string Review(bool positive) {
    // A spread of lengths: one in forty is seven times longer than the median, or shorter.
    const double count =
        absl::GetFlag(FLAGS_sentences) * std::exp(std::clamp(numbers_.Normal(), -3.0, 3.0));
    const auto sentences = std::max<int64_t>(1, static_cast<int64_t>(count));
    // One at least says what the class is.
    const int64_t judgement = numbers_.Below(sentences);
    std::string text;
    for (int64_t s = 0; s < sentences; ++s) {
      if (s > 0) absl::StrAppend(&text, " ");
      const double kind = numbers_.Uniform();
      if (s == judgement || kind < 0.5) {
        absl::StrAppend(&text, Judgement(positive));
      } else if (kind < 0.75) {
        absl::StrAppend(&text, HearSay());
      } else {
        absl::StrAppend(&text, Pick(kFacts));
      }
    }
    return text;
  }

 private:
  const char* Pick(const Words& words) {
    return words[static_cast<size_t>(numbers_.Below(static_cast<int64_t>(words.size())))];
  }

  std::string Judgement(bool positive) {
    const bool negated = numbers_.Uniform() < absl::GetFlag(FLAGS_negated);
    const Words& words = positive != negated ? kGood : kBad;
    const char* thing = Pick(kThings);
    if (!negated) {
      return absl::StrFormat(numbers_.Uniform() < 0.5 ? "the %s was %s%s." : "I found the %s %s%s.",
                             thing, Pick(kVery), Pick(words));
    }
    switch (numbers_.Below(3)) {
      case 0:
        return absl::StrFormat("the %s was not %s at all.", thing, Pick(words));
      case 1:
        return absl::StrFormat("nobody could call the %s %s.", thing, Pick(words));
      default:
        return absl::StrFormat("I don't think the %s was %s.", thing, Pick(words));
    }
  }

  // Half of it one way, half the other, whatever the class.
  std::string HearSay() {
    const Words& words = numbers_.Uniform() < 0.5 ? kGood : kBad;
    return absl::StrFormat("%s had called the %s %s.", Pick(kOthers), Pick(kThings), Pick(words));
  }

  Numbers numbers_;
};

absl::Status WriteAll(const std::string& folder) {
  for (const auto& [set, count] : {std::pair("train", absl::GetFlag(FLAGS_train)),
                                   std::pair("test", absl::GetFlag(FLAGS_test))}) {
    std::string lines;
    for (const char* label : {"neg", "pos"}) {
      RETURN_IF_ERROR(MakeFolder(absl::StrCat(folder, "/", set, "/", label)));
    }
    for (int i = 0; i < count; ++i) {
      const char* label = i % 2 == 0 ? "neg" : "pos";
      const std::string name = absl::StrCat(set, "/", label, "/", i / 2, ".txt");
      const std::string review =
          Writer(RandomKey(static_cast<uint64_t>(absl::GetFlag(FLAGS_seed)), name)).Review(i % 2);
      RETURN_IF_ERROR(WriteText(absl::StrCat(folder, "/", name), review + "\n"));
      absl::StrAppend(&lines, label, "\t", review, "\n");
    }
    RETURN_IF_ERROR(WriteText(absl::StrCat(folder, "/", set, ".tsv"), lines));
  }
  return WriteText(
      folder + "/SYNTHETIC",
      absl::StrFormat("Synthetic: made up by make_reviews --train=%d --test=%d --negated=%g "
                      "--sentences=%g --seed=%d\n",
                      absl::GetFlag(FLAGS_train), absl::GetFlag(FLAGS_test),
                      absl::GetFlag(FLAGS_negated), absl::GetFlag(FLAGS_sentences),
                      absl::GetFlag(FLAGS_seed)));
}

absl::Status Check() {
  for (const auto& [flag, count] : {std::pair("train", absl::GetFlag(FLAGS_train)),
                                    std::pair("test", absl::GetFlag(FLAGS_test))}) {
    RETURN_IF_ERROR(CheckValue(count >= 2 && count <= 1'000'000, flag, count, "2 to 1000000"));
  }
  const double negated = absl::GetFlag(FLAGS_negated), sentences = absl::GetFlag(FLAGS_sentences);
  RETURN_IF_ERROR(CheckValue(negated >= 0 && negated <= 1, "negated", negated, "0 to 1"));
  return CheckValue(sentences >= 1 && sentences <= 1000, "sentences", sentences, "1 to 1000");
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunMaker(
      argc, argv, gyre::kUsage, gyre::kGroups,
      {"synthetic reviews", FLAGS_out, FLAGS_train, FLAGS_test, gyre::Check, gyre::WriteAll});
}
