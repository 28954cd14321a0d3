// Reads the tables of a provider file one key at a time and notes what is wrong. A key that is
// never read is unknown, and reported with the nearest known one.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/enums.h"
#include "pool/rest/json_path.h"
#include "pool/rest/toml_tree.h"

namespace billow::pool::rest {

struct Problems {
  std::string file;
  std::vector<std::string> lines;
  void add(int line, const std::string& key, const std::string& message);
};

class Section {
 public:
  // `where` is the section's name in messages: "create.body".
  Section(const TomlNode* node, std::string where, Problems& problems);
  Section(Section&& other) noexcept;
  ~Section();  // reports the keys that were never read

  bool there() const { return node_ != nullptr; }
  int line() const { return node_ ? node_->line : 0; }
  int line_of(const char* key) const;  // of the key, or else of the section
  const std::string& where() const { return where_; }
  bool has(const char* key) const { return node_ && node_->find(key); }

  enum Need { optional, required };
  std::string text(const char* key, Need need = optional, std::string fallback = {});
  std::vector<std::string> texts(const char* key);  // a string, or a list of scalars
  double number(const char* key, double fallback, double min, double max);
  std::int64_t whole(const char* key, std::int64_t fallback, std::int64_t min, std::int64_t max);
  bool flag(const char* key, bool fallback);
  JsonPath path(const char* key, Need need = optional);
  std::optional<JsonPath> path_if(const char* key);
  template <NamedEnum E>
  E choice(const char* key, E fallback) {
    const std::string given = text(key);
    if (given.empty())
      return fallback;
    if (const auto value = enum_value<E>(given))
      return *value;
    std::vector<std::string> known;
    for (const auto& [value, name] : EnumNames<E>::table)
      known.emplace_back(name);
    unknown_choice(key, given, known);
    return fallback;
  }
  const TomlNode* raw(const char* key);            // read as a whole by the caller
  Section section(const char* key);                // may be absent: there() is false
  std::vector<Section> sections(const char* key);  // a table, or an array of tables
  // Every member of a table whose keys are free.
  std::vector<std::pair<std::string, const TomlNode*>> members();
  void problem(const char* key, const std::string& message);
  void problem_at(int line, const char* key, const std::string& message);

 private:
  const TomlNode* take(const char* key);
  void unknown_choice(const char* key,
                      const std::string& given,
                      const std::vector<std::string>& known);
  std::string key_name(const char* key) const;
  const TomlNode* node_;
  std::string where_;
  Problems* problems_;
  std::set<std::string> read_;
};

}  // namespace billow::pool::rest
