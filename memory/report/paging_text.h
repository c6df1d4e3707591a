// paging_text.h: a plan of paging for people: what is where and when, the largest first, and what
// it is expected to cost.  Pure functions.
#pragma once

#include <string>

#include "memory/planner/paging_plan.h"

namespace gyre {

// Where a block is that is not on the device for good, between its stays there.
enum class Elsewhere : uint8_t {
  kNowhere,  // nobody needs its value then
  kHost,
  kDisk,
  kMadeAgain,  // nowhere: a step that runs again makes its value
};
Elsewhere WhereBetween(const PagingPlan& plan, int block);

// A table by where blocks are; then the largest ones with their bytes and the steps, by position,
// that find them on the device.  Precondition: the plan is of this trace.
std::string DescribePlaces(const AccessTrace& trace, const PagingPlan& plan);

// What an iteration is expected to take, with all in memory too, what it waits for copies, what
// copies and what runs again.
std::string DescribeTimes(const AccessTrace& trace, const PagingPlan& plan,
                          const PagingCosts& costs);

// Of what steps find rounded to 16 bits: what runs in which order and which values leave and come
// back.  Plans of one trace and one text give the same bits; "": nothing is rounded.
std::string RoundingText(const PagingPlan& plan);

// Of all steps, each once: what an iteration takes that waits for nothing.
double WorkSeconds(const AccessTrace& trace);

}  // namespace gyre
