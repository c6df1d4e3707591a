// survey_text.h: what a survey has found, for people and for programs.  Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/data/survey/survey.h"

namespace gyre {

// Tables with a column for each set, and lists of faulty samples.  At most some 20 rows of each.
// `classes` are their names by number, or empty.
std::string SurveyText(const Survey& survey, std::span<const SurveyedSet> sets,
                       const std::vector<std::string>& classes);

// All of it as one JSON object:
//   {"sets": {NAME: {"samples", "classes", "pictures", "sizes": {"least": [height, width],
//       "median", "largest"}, "reals": {INPUT: [least, most]}, "unreadable": [{"sample",
//       "reason"}]}},
//    "duplicates": [{"first": {"set", "sample", "name"}, "again", "other_label"}], "sound"}
std::string SurveyJson(const Survey& survey, std::span<const SurveyedSet> sets,
                       const std::vector<std::string>& classes);

// Why the survey is not sound, such as "2 samples cannot be read".  "": it is.
std::string FaultsOf(const Survey& survey, std::span<const SurveyedSet> sets);

}  // namespace gyre
