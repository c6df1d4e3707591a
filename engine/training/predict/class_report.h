// class_report.h: how a classifier errs, class by class.  Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace gyre {

class ClassReport {
 public:
  // Errors: InvalidArgument for more classes than 4096, whose pairs take 128 MiB, and twice as much
  // while they are written.
  static absl::Status CheckClasses(int64_t classes);

  // `names` by class.  `top` is the number of classes that in_top counts among.  Precondition:
  // CheckClasses.
  ClassReport(std::vector<std::string> names, int top);

  // A sample, what it is and the share that the net gives each class.  Of equal shares the first
  // class counts as the likeliest.  Precondition: 0 <= label < shares.size() == the classes.
  void Add(const std::string& sample, int64_t label, std::span<const double> shares);

  // For people: shares of samples that are right, a table of at most 20 classes, the least right
  // first, and the pairs that are confused most.
  std::string Text() const;
  // One JSON object: shares that are right, all classes, the pairs that are confused most, and the
  // samples that cost the most.
  std::string Json() const;
  // Writes to a folder, which is made: classes.csv, confusion.csv (a row a label, a column a
  // prediction), confusion.png, and worst.csv (the samples that cost the most, -log of the share).
  absl::Status Write(const std::string& folder) const;

 private:
  struct ClassCounts {
    std::string name;
    int64_t samples = 0;    // of the class
    int64_t correct = 0;    // of these, those that it is the likeliest class of
    int64_t in_top = 0;     // of these, those with it among the `top` likeliest
    int64_t predicted = 0;  // of any class, those that it is the likeliest class of
  };
  // The share of all samples that `count` has over all classes.
  double ShareOf(int64_t ClassCounts::*count) const;
  // At most `most` pairs of a label and another class, those that are confused most first, as
  // indices of confusion_.
  std::vector<size_t> MostConfused(size_t most) const;
  struct Costly {
    double loss;
    std::string sample;
    size_t label, predicted;
    double share;  // of the label
  };
  static constexpr size_t kWorst = 100;
  std::vector<Costly> Worst() const;  // the costliest first

  std::vector<ClassCounts> classes_;
  std::vector<int64_t> confusion_;  // samples by label, then by the likeliest class
  std::vector<Costly> worst_;       // a heap of at most kWorst, the least costly first
  const int top_;
  int64_t samples_ = 0;
};

}  // namespace gyre
