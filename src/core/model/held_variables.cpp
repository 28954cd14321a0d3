#include "core/model/held_variables.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace billow {
namespace {

constexpr std::string_view prefix = "BILLOW_HELD_";

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

// What `billow stage`, `billow ranks` and `billow box` read or set.
bool passes(std::string_view name) {
  constexpr std::string_view families[] = {"BILLOW_", "AWS_", "OMPI_", "PRTE_"};
  constexpr std::string_view names[] = {"PATH",      "HOME",       "USER",          "LOGNAME",
                                        "NODE_RANK", "NNODES",     "MASTER_ADDR",   "MASTER_PORT",
                                        "RANK",      "LOCAL_RANK", "SSL_CERT_FILE", "SSL_CERT_DIR"};
  return std::ranges::any_of(families, [&](auto family) { return name.starts_with(family); }) ||
         std::ranges::find(names, name) != std::end(names);
}

}  // namespace

std::vector<std::string> hold_variables(std::vector<std::string> env) {
  for (std::string& variable : env)
    if (!passes(name_of(variable)))
      variable.insert(0, prefix);
  return env;
}

std::vector<std::string> shown_variables(std::vector<std::string> env) {
  std::set<std::string, std::less<>> taken;
  for (const std::string& variable : env)
    if (!variable.starts_with(prefix))
      taken.emplace(name_of(variable));
  std::erase_if(env, [&](std::string& variable) {
    if (!variable.starts_with(prefix))
      return false;
    variable.erase(0, prefix.size());
    return !taken.emplace(name_of(variable)).second;
  });
  return env;
}

}  // namespace billow
