// Figures as answers write them, for serving and for training.
#pragma once

#include <cmath>

#include "advise/recommend.h"
#include "base/json.h"

namespace billow::advise {

inline double rounded(double v, int digits = 4) {
  if (v == 0 || !std::isfinite(v))
    return 0;
  double scale = std::pow(10, digits - 1 - std::floor(std::log10(std::fabs(v))));
  return std::round(v * scale) / scale;
}

// A price that is not known is a word, never zero.
inline Json or_unknown(const std::optional<double>& v) {
  return v ? Json(rounded(*v, 6)) : Json("unknown");
}

inline std::string gb(double bytes) {
  return fmt::format("{:.1f} GB", bytes / 1e9);
}

inline Json checks_json(const std::vector<Check>& checks) {
  Json out = Json::array();
  for (auto& c : checks)
    out.push(Json::object({{"rule", c.rule}, {"good", c.good}, {"why", c.why}}));
  return out;
}

}  // namespace billow::advise
