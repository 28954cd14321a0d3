// Options of a command, parsed against a table: unknown ones are refused with the nearest known
// name, numbers with their range.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace billow::advise {

struct OptionSpec {
  const char* name;  // "--model"
  bool takes_value = true;
};

class Options {
 public:
  static Result<Options> parse(const std::vector<std::string>& args,
                               const std::vector<OptionSpec>& specs);

  bool has(const std::string& name) const { return values_.contains(name); }
  std::string text(const std::string& name, std::string fallback = {}) const;
  std::vector<std::string> list(const std::string& name) const;  // by commas
  Result<double> number(const std::string& name, double fallback, double min, double max) const;
  Result<double> milliseconds(const std::string& name, double fallback) const;  // "500ms", "2s"
  const std::vector<std::string>& words() const { return words_; }

 private:
  std::map<std::string, std::string> values_;
  std::vector<std::string> words_;
};

}  // namespace billow::advise
