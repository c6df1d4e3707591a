// plan_picture.h: draws a predicted iteration, with device memory by kind over time, and steps and
// copies under it.  Pure functions.  The picture needs no other file.
#pragma once

#include <string>

#include "memory/report/plan_history.h"

namespace gyre {

// An SVG image, with a line at capacity_bytes.  Spans below half a pixel are drawn together.
std::string PlanPicture(const PlanHistory& history, size_t capacity_bytes,
                        const std::string& title);

// The image in a page of HTML, with preformatted text below it, such as tables.
std::string PlanPage(const PlanHistory& history, size_t capacity_bytes, const std::string& title,
                     const std::string& below);

}  // namespace gyre
