#include "pool/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/limits.h"
#include "base/text.h"
#include "net/http/proxy.h"

namespace billow::pool {
namespace {

// The registration of a new kind is one line here.
const std::array all_kinds = {&azure_kind,      &command_kind, &ec2_kind,  &gce_kind,
                              &kubernetes_kind, &rest_kind,    &slurm_kind};

std::unexpected<Error> unknown_kind(std::string_view name) {
  std::vector<std::string> known;
  for (const Kind* kind : all_kinds)
    known.emplace_back(kind->name);
  return fail(Code::invalid, fmt::format("unknown pool kind \"{}\"", name),
              "use one of: " + join(known, ", ") + "; for clouds, use `billow cloud add`");
}

Status check_options(const Kind& kind, const billow::Pool& settings) {
  std::vector<std::string> known;
  for (const KindOption& option : kind.options)
    known.emplace_back(option.name);
  for (const auto& [name, value] : settings.options)
    if (!kind.checks_options && std::find(known.begin(), known.end(), name) == known.end())
      return fail(Code::invalid,
                  fmt::format("pools of kind {} have no option \"{}\"", kind.name, name),
                  known.empty() ? "" : "use one of: " + join(known, ", "));
  for (const KindOption& option : kind.options) {
    const auto given = settings.options.find(std::string(option.name));
    if (option.required && (given == settings.options.end() || given->second.empty()))
      return fail(Code::invalid,
                  fmt::format("a pool of kind {} needs the option {}", kind.name, option.name),
                  fmt::format("add --option {}=VALUE: {}", option.name, option.help));
  }
  return {};
}

}  // namespace

std::span<const Kind* const> kinds() {
  return all_kinds;
}

const Kind* find_kind(std::string_view name) {
  for (const Kind* kind : all_kinds)
    if (kind->name == name)
      return kind;
  return nullptr;
}

bool fetches_program(std::string_view kind) {
  const Kind* found = find_kind(kind);
  return found && found->fetches_program;
}

Duration token_life(std::string_view name) {
  const Kind* kind = find_kind(name);
  return kind ? kind->token_life : limits::join_token_life_default;
}

Status complete_new_pool(billow::Pool& settings) {
  const Kind* kind = find_kind(settings.kind);
  if (!kind)
    return unknown_kind(settings.kind);
  BILLOW_TRY_VOID(check_options(*kind, settings));
  BILLOW_TRY_VOID(kind->check(settings));
  if (const auto proxy = settings.options.find("proxy"); proxy != settings.options.end())
    BILLOW_TRY(net::parse_proxy(proxy->second));
  settings.capabilities = kind->capabilities;
  if (kind->adjust)
    kind->adjust(settings, *settings.capabilities);
  return {};
}

bool uses_heads_rights(const billow::Pool& settings) {
  if (!settings.create_command.empty() || !settings.list_command.empty() ||
      !settings.delete_command.empty() || !settings.sbatch_args.empty())
    return true;
  const Kind* kind = find_kind(settings.kind);
  return kind && std::ranges::any_of(kind->options, [&](const KindOption& option) {
           return option.heads_rights && settings.options.contains(std::string(option.name));
         });
}

Result<std::unique_ptr<Pool>> make_pool(const billow::Pool& settings, const Options& options) {
  const Kind* kind = find_kind(settings.kind);
  if (!kind)
    return unknown_kind(settings.kind);
  return kind->make(settings, options);
}

}  // namespace billow::pool
