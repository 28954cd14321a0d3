#include "advise/options.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace billow::advise {

Result<Options> Options::parse(const std::vector<std::string>& args,
                               const std::vector<OptionSpec>& specs) {
  Options o;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::string name = args[i], value;
    bool joined = false;
    if (!name.starts_with("--")) {
      o.words_.push_back(name);
      continue;
    }
    if (auto at = name.find('='); at != std::string::npos)
      value = name.substr(at + 1), name.resize(at), joined = true;
    auto spec = std::find_if(specs.begin(), specs.end(), [&](auto& s) { return name == s.name; });
    if (spec == specs.end()) {
      std::vector<std::string> names;
      for (auto& s : specs)
        names.emplace_back(s.name);
      auto near = nearest(name, names);
      return fail(Code::invalid, fmt::format("unknown option {}", name),
                  near.empty() ? "--help lists them" : fmt::format("did you mean {}?", near));
    }
    if (spec->takes_value && !joined) {
      if (i + 1 >= args.size())
        return fail(Code::invalid, fmt::format("{} needs a value", name));
      value = args[++i];
    }
    if (!spec->takes_value && joined)
      return fail(Code::invalid, fmt::format("{} takes no value", name));
    o.values_[name] = value;
  }
  return o;
}

std::string Options::text(const std::string& name, std::string fallback) const {
  auto it = values_.find(name);
  return it == values_.end() ? std::move(fallback) : it->second;
}

std::vector<std::string> Options::list(const std::string& name) const {
  std::vector<std::string> out;
  for (auto& part : split(text(name), ','))
    if (!trim(part).empty())
      out.emplace_back(trim(part));
  return out;
}

Result<double> Options::number(const std::string& name,
                               double fallback,
                               double min,
                               double max) const {
  auto it = values_.find(name);
  if (it == values_.end())
    return fallback;
  char* end = nullptr;
  double v = std::strtod(it->second.c_str(), &end);
  if (end == it->second.c_str() || *end != 0 || !std::isfinite(v) || v < min || v > max)
    return fail(Code::invalid, fmt::format("{} is \"{}\", not a number from {:g} to {:g}", name,
                                           it->second, min, max));
  return v;
}

Result<double> Options::milliseconds(const std::string& name, double fallback) const {
  auto it = values_.find(name);
  if (it == values_.end())
    return fallback;
  auto d = parse_duration(it->second);
  if (!d)
    return pass(d.error(), name);
  if (d->ns <= 0)
    return fail(Code::invalid, fmt::format("{} must be longer than nothing", name));
  return static_cast<double>(d->ns) / 1e6;
}

}  // namespace billow::advise
