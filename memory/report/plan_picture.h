// plan_picture.h: an iteration to look at: device memory over time by kind, and under it what is
// computed, fetched and written back when, as the plan predicts it.  Pure functions from a history
// to text; the picture needs no other file.
#pragma once

#include <string>

#include "memory/report/plan_history.h"

namespace gyre {

// An SVG image of a history; capacity_bytes is drawn as a line.  Spans narrower than a pixel are
// drawn together.
std::string PlanPicture(const PlanHistory& history, size_t capacity_bytes,
                        const std::string& title);

// The same in a page of HTML, with text as it is below it, such as tables.
std::string PlanPage(const PlanHistory& history, size_t capacity_bytes, const std::string& title,
                     const std::string& below);

}  // namespace gyre
