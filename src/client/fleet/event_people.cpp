// Sentences of users, projects, tokens, settings and money.
#include "base/money.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "client/fleet/event_sentences.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

std::string on_user_added(const EventReader& r) {
  const Json& user = r.body["user"];
  r.names.users[user["id"].uint_or(0)] = std::string(user["name"].str_or("?"));
  return fmt::format("user {} added, {}", user["name"].str_or("?"), user["role"].str_or("member"));
}

std::string on_user_changed(const EventReader& r) {
  return fmt::format("user {} is {}, {}", r.user(), r.text("role", "member"),
                     r.text("state", "active"));
}

std::string on_project_added(const EventReader& r) {
  const Json& project = r.body["project"];
  r.names.projects[project["id"].uint_or(0)] = std::string(project["name"].str_or("?"));
  return fmt::format("project {} added", project["name"].str_or("?"));
}

std::string on_project_changed(const EventReader& r) {
  const Json& quota = r.body["quota"];
  const auto gpus = [&](const char* member) {
    return static_cast<double>(quota[member].int_or(0)) / 1000;
  };
  return fmt::format("project {}: guaranteed {:g} GPUs, {}, weight {}, policy {}", r.project(),
                     gpus("guaranteed_milli"),
                     quota["limit_milli"].int_or(-1) < 0
                         ? std::string("no maximum")
                         : fmt::format("at most {:g}", gpus("limit_milli")),
                     r.body["weight"].uint_or(100), quota["policy"].str_or("fair"));
}

std::string on_project_tagged(const EventReader& r) {
  const auto value = r.text("value", "");
  return fmt::format("project {}: tag {} {}", r.project(), r.text("key"),
                     value.empty() ? std::string("removed") : fmt::format("set to {}", value));
}

std::string on_member_set(const EventReader& r) {
  const auto role = r.text("role", "");
  return role.empty()
             ? fmt::format("{} is no longer a member of project {}", r.text("user"), r.project())
             : fmt::format("{} is {} of project {}", r.text("user"), role, r.project());
}

std::string on_default_project_set(const EventReader& r) {
  return fmt::format("the default project of {} is {}", r.user(), r.project());
}

std::string on_token_created(const EventReader& r) {
  const Json& token = r.body["token"];
  r.names.tokens[token["id"].uint_or(0)] = std::string(token["name"].str_or(""));
  std::string text =
      fmt::format("{} created, scope {}", EventReader::quoted(r.names.tokens, token["id"], "token"),
                  token["scope"].str_or("full"));
  if (token["user"].uint_or(0))
    text += ", for " + EventReader::named(r.names.users, token["user"], "user");
  return text;
}

std::string on_token_rotated(const EventReader& r) {
  return r.token() + " has a new value";
}

std::string on_token_revoked(const EventReader& r) {
  return r.token() + " revoked";
}

std::string on_token_bound(const EventReader& r) {
  return fmt::format("{} is the credential of node {}", r.token(), r.text("node", "none"));
}

std::string on_token_used(const EventReader& r) {
  return fmt::format("{} joined with {}", r.text("node"), r.token());
}

std::string on_access_denied(const EventReader& r) {
  const auto user = r.text("user", "");
  const std::uint64_t count = r.body["count"].uint_or(1);
  return fmt::format("refused: {} from {}{}{}: {}", r.text("what"), r.text("peer"),
                     user.empty() ? "" : fmt::format(" as {}", user),
                     count > 1 ? fmt::format(" ({} calls)", count) : "", r.text("reason"));
}

std::string on_role_set(const EventReader& r) {
  std::string allowed;
  for (const Json& each : r.body.at("role", "allow").items())
    allowed += (allowed.empty() ? "" : ", ") + std::string(each.str_or("?"));
  return fmt::format("role {} allows {}", r.body.at("role", "name").str_or("?"), allowed);
}

std::string on_role_removed(const EventReader& r) {
  return fmt::format("role {} deleted", r.text("name"));
}

// "queued-jobs of user ana", "connections of each user".
std::string quota_of(const EventReader& r, const Json& key) {
  const auto scope = key["scope"].str_or("user");
  const std::uint64_t of = key["of"].uint_or(0);
  const auto& known = scope == "project" ? r.names.projects : r.names.users;
  const std::string name = EventReader::named(known, key["of"], "");
  return fmt::format("quota {} of {}", key["kind"].str_or("queued-jobs"),
                     of == 0 ? fmt::format("each {} without its own", scope)
                             : fmt::format("{} {}", scope, trim(name)));
}

std::string on_quota_set(const EventReader& r) {
  const Json& quota = r.body["quota"];
  const std::int64_t limit = quota["limit"].int_or(-1);
  return fmt::format("{} is {}", quota_of(r, quota["key"]),
                     limit < 0 ? std::string("not limited") : fmt::format("{}", limit));
}

std::string on_quota_removed(const EventReader& r) {
  return quota_of(r, r.body["quota"]) + " removed; the default applies";
}

std::string on_approval_asked(const EventReader& r) {
  const Json& a = r.body["approval"];
  return fmt::format("agent token {} asks for approval {}: {}", a["agent"].str_or("?"),
                     a["id"].uint_or(0), a["text"].str_or("?"));
}

std::string on_approval_changed(const EventReader& r) {
  const auto state = r.text("state", "denied"), by = r.text("by", "");
  return fmt::format("approval {} {}{}{}", r.number("approval"), state == "expired" ? "" : "was ",
                     state, by.empty() ? "" : fmt::format(" by {}", by));
}

// ---- what a project keeps by name
// Presets of a project are kept among the head's own secrets, "preset.PROJECT.NAME", and so are
// keys of webhooks, "webhook.NUMBER".
std::string secret_sentence(const EventReader& r,
                            const Json& project,
                            std::string_view name,
                            bool set) {
  constexpr std::string_view preset = "preset.", webhook = "webhook.";
  if (project.uint_or(0) == 0 && name.starts_with(webhook))
    return fmt::format("webhook {} {}", name.substr(webhook.size()),
                       set ? "has a new signing key" : "no longer has a signing key");
  const auto dot = name.find('.', preset.size());
  if (project.uint_or(0) != 0 || !name.starts_with(preset) || dot == std::string_view::npos)
    return fmt::format("secret {}{} was {}", name,
                       project.uint_or(0) ? " of project " + r.project_of(project) : std::string(),
                       set ? "set" : "removed");
  const auto owner = parse_int(name.substr(preset.size(), dot - preset.size()), 1, INT64_MAX);
  return fmt::format("preset {} of project {} was {}", name.substr(dot + 1),
                     owner ? r.project_of(Json(*owner)) : "?", set ? "saved" : "removed");
}
std::string on_secret_set(const EventReader& r) {
  const Json& secret = r.body["secret"];
  return secret_sentence(r, secret["project"], secret["name"].str_or("?"), true);
}
std::string on_secret_removed(const EventReader& r) {
  return secret_sentence(r, r.body["project"], r.text("name"), false);
}

std::string on_secrets_resealed(const EventReader& r) {
  return fmt::format("{} encrypted with a new key",
                     how_many(r.body["secrets"].size() + r.body["pools"].size(), "secret"));
}

std::string on_environment_saved(const EventReader& r) {
  const Json& saved = r.body["environment"];
  return fmt::format("environment {} of project {} saved, {}", saved["name"].str_or("?"),
                     r.project_of(saved["project"]), format_bytes(saved["bytes"].uint_or(0)));
}

std::string on_saved_environment_removed(const EventReader& r) {
  return fmt::format("environment {} of project {} removed", r.text("name"), r.project());
}

std::string on_volume_declared(const EventReader& r) {
  const Json& volume = r.body["volume"];
  return fmt::format("volume {} added: {}", volume["name"].str_or("?"), volume["path"].str_or("?"));
}

std::string on_volume_removed(const EventReader& r) {
  return fmt::format("volume {} removed", r.text("name"));
}

// ---- notices
std::string on_notice_target_set(const EventReader& r) {
  const Json& target = r.body["target"];
  return fmt::format("notices of {} go to {} ({}, target {})",
                     EventReader::named(r.names.users, target["user"], "user"),
                     target["to"].str_or("?"), target["via"].str_or("email"),
                     target["id"].uint_or(0));
}

std::string on_notice_target_removed(const EventReader& r) {
  return fmt::format("notice target {} removed", r.number("target"));
}

std::string on_notice_queued(const EventReader& r) {
  const Json& notice = r.body["notice"];
  return fmt::format("notice for target {}: {}", notice["target"].uint_or(0),
                     notice["title"].str_or("?"));
}

std::string on_notices_sent(const EventReader& r) {
  const auto trouble = r.text("trouble", "");
  return trouble.empty() ? fmt::format("notices to target {} were sent", r.number("target"))
                         : fmt::format("notices to target {} could not be sent: {}",
                                       r.number("target"), trouble);
}

std::string on_webhook_added(const EventReader& r) {
  return fmt::format("webhook {} added: {}", r.body.at("webhook", "id").uint_or(0),
                     r.body.at("webhook", "url").str_or("?"));
}

std::string on_webhook_removed(const EventReader& r) {
  return fmt::format("webhook {} removed", r.number("webhook"));
}

std::string on_webhook_delivered(const EventReader& r) {
  return fmt::format("webhook {} got the notices up to event {}", r.number("webhook"),
                     r.number("through"));
}

// ---- money
std::string on_price_set(const EventReader& r) {
  const Json& rule = r.body["rule"];
  const auto rate = [&](const char* member, std::string_view what) {
    return rule[member].is_number()
               ? fmt::format(", {} {}", what, format_rate_per_hour({rule[member].int_or(0)}))
               : std::string();
  };
  return fmt::format("price of {} set{}{}{}", rule["of"].str_or("?"), rate("cost", "cost"),
                     rate("charge", "charge"), rate("charge_spot", "spot"));
}

std::string on_price_removed(const EventReader& r) {
  return fmt::format("price of {} removed; the market price applies", r.text("of"));
}

// "daily budget of project vision".
std::string budget_of(const EventReader& r, const Json& key) {
  const auto scope = key["scope"].str_or("project");
  const std::string of = scope == "user" ? EventReader::named(r.names.users, key["of"], "number")
                         : scope == "token"
                             ? EventReader::named(r.names.tokens, key["of"], "number")
                         : scope == "job" ? fmt::format("{}", key["of"].uint_or(0))
                                          : r.project_of(key["of"]);
  return fmt::format("{} budget of {} {}", key["period"].str_or("monthly"), scope, of);
}

std::string on_budget_set(const EventReader& r) {
  const Json& budget = r.body["budget"];
  return fmt::format("{} is {}{}", budget_of(r, budget), usd_text(budget["limit"]),
                     budget["stops"].bool_or(true) ? "" : "; it only warns");
}

std::string on_budget_removed(const EventReader& r) {
  return budget_of(r, r.body["budget"]) + " removed";
}

std::string on_budget_warned(const EventReader& r) {
  const auto text = r.text("text", "");  // names the budget
  return text.empty() ? budget_of(r, r.body["budget"]) + ": a new period began" : std::string(text);
}

std::string on_idle_policy_set(const EventReader& r) {
  const std::string of =
      r.number("project") ? "project " + r.project() : std::string("all other projects");
  const Json& policy = r.body["policy"];
  if (!policy.is_object())
    return fmt::format("idle rules of {}: the default", of);
  if (!policy["enabled"].bool_or(true))
    return fmt::format("idle rules of {}: off", of);
  const auto after = [&](const char* member, Duration otherwise) {
    return format_duration(Duration{policy[member].int_or(otherwise.ns)});
  };
  return fmt::format("idle rules of {}: warn after {}, suspend after {}, stop after {}", of,
                     after("warn_after_ns", seconds(570)), after("suspend_after_ns", minutes(15)),
                     after("stop_after_ns", minutes(22)));
}

std::string on_idle_floor_set(const EventReader& r) {
  const std::int64_t longest = r.body.at("floor", "suspend_by_ns").int_or(hours(12).ns);
  return longest
             ? fmt::format("no job may be idle longer than {}", format_duration(Duration{longest}))
             : std::string("the longest idle time of jobs is not limited");
}

std::string on_day_closed(const EventReader& r) {
  return fmt::format(
      "the books of {} are closed: {} charged, the nodes cost {}",
      format_utc(WallTime{r.body["day"].int_or(0) * 86'400'000'000'000}).substr(0, 10),
      usd_text(r.body["charge"]), usd_text(r.body["fleet"]));
}

std::string on_month_closed(const EventReader& r) {
  return fmt::format("the books of {} are closed: {} charged", r.text("month"),
                     usd_text(r.body["charge"]));
}

std::string on_commitment_set(const EventReader& r) {
  const Json& c = r.body["commitment"];
  return fmt::format("commitment {} set: {} × {} at {} each", c["name"].str_or("?"),
                     c["gpus"].int_or(0), c["gpu"].str_or("?"),
                     format_rate_per_hour({c["rate"].int_or(0)}));
}

std::string on_commitment_removed(const EventReader& r) {
  return fmt::format("commitment {} removed", r.text("name"));
}

std::string on_bill_imported(const EventReader& r) {
  return fmt::format("bill {} compared: {}, {} billed, {} in the books, {}", r.text("name"),
                     how_many(r.number("lines"), "line"), usd_text(r.body["billed"]),
                     usd_text(r.body["ours"]),
                     r.number("differing") ? fmt::format("{} differ", r.number("differing"))
                                           : std::string("all agree"));
}

}  // namespace

void add_people_sentences(EventSentences& into) {
  into.insert({{"user_added", on_user_added},
               {"user_changed", on_user_changed},
               {"project_added", on_project_added},
               {"project_changed", on_project_changed},
               {"project_tagged", on_project_tagged},
               {"member_set", on_member_set},
               {"default_project_set", on_default_project_set},
               {"token_created", on_token_created},
               {"token_rotated", on_token_rotated},
               {"token_revoked", on_token_revoked},
               {"token_bound", on_token_bound},
               {"token_used", on_token_used},
               {"access_denied", on_access_denied},
               {"role_set", on_role_set},
               {"role_removed", on_role_removed},
               {"quota_set", on_quota_set},
               {"quota_removed", on_quota_removed},
               {"approval_asked", on_approval_asked},
               {"approval_changed", on_approval_changed},
               {"secret_set", on_secret_set},
               {"secret_removed", on_secret_removed},
               {"secrets_resealed", on_secrets_resealed},
               {"environment_saved", on_environment_saved},
               {"saved_environment_removed", on_saved_environment_removed},
               {"volume_declared", on_volume_declared},
               {"volume_removed", on_volume_removed},
               {"notice_target_set", on_notice_target_set},
               {"notice_target_removed", on_notice_target_removed},
               {"notice_queued", on_notice_queued},
               {"notices_sent", on_notices_sent},
               {"webhook_added", on_webhook_added},
               {"webhook_removed", on_webhook_removed},
               {"webhook_delivered", on_webhook_delivered}});
}

void add_money_sentences(EventSentences& into) {
  into.insert({{"price_set", on_price_set},
               {"price_removed", on_price_removed},
               {"budget_set", on_budget_set},
               {"budget_removed", on_budget_removed},
               {"budget_warned", on_budget_warned},
               {"idle_policy_set", on_idle_policy_set},
               {"idle_floor_set", on_idle_floor_set},
               {"day_closed", on_day_closed},
               {"month_closed", on_month_closed},
               {"commitment_set", on_commitment_set},
               {"commitment_removed", on_commitment_removed},
               {"bill_imported", on_bill_imported}});
}

}  // namespace billow::client
