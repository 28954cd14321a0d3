// `billow describe` shows everything that a job asks for: each member of the request is changed
// alone, and the document of the head and the words of the client must both change. A new option
// that neither shows fails here without another line.
#include <gtest/gtest.h>

#include <algorithm>

#include "client/endpoints/endpoints.h"
#include "client/frame/table.h"
#include "client/request/job_list.h"
#include "client/request/job_request.h"
#include "client/request/option_words.h"
#include "core/model/endpoint.h"
#include "core/wire/codec.h"
#include "view/spec_document.h"

namespace billow::client {
namespace {

// Gives one member of a struct, by its number, another value.
class Change {
 public:
  explicit Change(int number) : wanted_(number) {}
  std::string changed;  // its path
  int seen = 0;

  template <class T>
  void operator()(const char* name, T& value) {
    const std::string up = path_;
    path_ += (path_.empty() ? "" : ".") + std::string(name);
    using namespace wire::detail;
    if constexpr (wire::HasFields<T>)
      T::fields(value, *this);
    else if (seen++ == wanted_) {
      changed = path_;
      value = other(value);
    }
    path_ = up;
  }

 private:
  template <class T>
  static T other(const T& value) {
    using namespace wire::detail;
    if constexpr (std::is_same_v<T, bool>)
      return !value;
    else if constexpr (std::is_arithmetic_v<T>)
      return static_cast<T>(value + 3);
    else if constexpr (std::is_same_v<T, NanoUsd>)
      return NanoUsd{value.value + 3'000'000'000};
    else if constexpr (std::is_same_v<T, Duration>)
      return value + seconds(70);
    else if constexpr (IsId<T>::value)
      return T{value.value + 3};
    else if constexpr (NamedEnum<T>) {
      for (const auto& [each, name] : EnumNames<T>::table)
        if (each != value)
          return each;
      return value;
    } else if constexpr (std::is_same_v<T, std::string>)
      return value + "other";
    else if constexpr (IsVector<T>::value) {
      T longer = value;
      longer.push_back(filled<typename T::value_type>());
      return longer;
    } else if constexpr (IsStringMap<T>::value)
      return T{{"key", "worth"}};
    else if constexpr (IsOptional<T>::value)
      return filled<typename T::value_type>();
    else
      static_assert(!sizeof(T), "say here what another value of this type is");
  }
  template <class T>
  static T filled() {
    T out{};
    if constexpr (std::is_same_v<T, std::string>)
      out = "other";
    if constexpr (std::is_same_v<T, ArraySpec>)
      out.last = 7;
    if constexpr (std::is_same_v<T, SecretWish>)
      out.variable = out.name = "TOKEN";
    return out;
  }
  int wanted_;
  std::string path_;
};

std::string description(const JobSpec& spec) {
  Json document = Json::object({{"label", "7"}, {"state", "queued"}});
  view::add_spec(document, spec);
  return describe_text(document, WallTime{}, {.columns = 200});
}
std::string document(const JobSpec& spec) {
  Json made = Json::object();
  view::add_spec(made, spec);
  return made.dump();
}

// A request in which each member means something: shares need a GPU, digests their names.
JobSpec usual() {
  JobSpec spec;
  spec.argv = {"python", "train.py"};
  spec.cwd = "/home/ada";
  spec.resources.gpus = 1;
  spec.resources.share.milli = 500;
  spec.surroundings.environment = "torch";
  spec.surroundings.environment_digest = "5eed";
  return spec;
}

// What nobody asks for: the head sets the digest, a terminal follows the size of its window.
bool no_wish(std::string_view path) {
  return path == "env_digest" || path == "rows" || path == "cols";
}

template <class Changed>
int each_member_shows(Changed changed) {
  int shown = 0;
  for (int number = 0;; ++number) {
    JobSpec before = usual(), after = usual();
    Change nothing(-1), change(number);
    changed(before, nothing);
    changed(after, change);
    if (change.changed.empty())
      return shown;
    if (no_wish(change.changed))
      continue;
    ++shown;
    EXPECT_NE(document(before), document(after)) << change.changed << " is not in the document";
    EXPECT_NE(description(before), description(after)) << change.changed << " is not described";
  }
}

TEST(Describe, ShowsEveryMemberOfARequest) {
  const int shown =
      each_member_shows([](JobSpec& spec, Change& change) { JobSpec::fields(spec, change); });
  EXPECT_GE(shown, 55);
}

TEST(Describe, ShowsEveryMemberOfARole) {
  const int shown = each_member_shows([](JobSpec& spec, Change& change) {
    RoleSpec role;
    static_cast<TaskOptions&>(role) = spec;
    role.name = "trainer";
    role.resources = spec.resources;
    RoleSpec::fields(role, change);
    spec.roles = {role};
  });
  EXPECT_GE(shown, 40);
}

TEST(Describe, SaysNothingAboutDefaults) {
  JobSpec spec = usual();
  Json made = Json::object();
  view::add_spec(made, spec);
  EXPECT_EQ(made.find("options"), nullptr) << made["options"].dump();
}

TEST(Describe, SaysOptionsInPlainWords) {
  JobRequest request;
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"stop-grace", "90s"},
                                                        {"region", "eu,us"},
                                                        {"max-price", "3.00"},
                                                        {"rerun-if-lost", ""},
                                                        {"checkpoint-signal", "USR1"},
                                                        {"topology", "nvlink,rack:required"},
                                                        {"node-label", "tier=gold"},
                                                        {"suspendable", "no"},
                                                        {"suspend-hook", "./save.sh now"}})
    ASSERT_TRUE(set_option(request, name, value)) << name;
  Json made = Json::object();
  view::add_spec(made, request.spec);
  std::vector<std::string> said;
  for (const OptionWords& words : option_words(made["options"]))
    said.push_back(words.name + ": " + words.value);
  std::ranges::sort(said);
  EXPECT_EQ(said,
            (std::vector<std::string>{
                "checkpoint signal: USR1", "fast suspend: no", "max price: $3.00 per GPU and hour",
                "node label: tier=gold", "region: eu or us", "rerun if lost: yes",
                "stop grace: 1m 30s", "suspend hook: ./save.sh now",
                "topology: nodes of one rack, required, NVLink between the GPUs"}));
}

TEST(Describe, ShowsEveryMemberOfAnEndpointsPolicy) {
  const auto described = [](const EndpointPolicy& policy) {
    return endpoint_text(Json::object({{"name", "chat"},
                                       {"min", policy.min},
                                       {"max", policy.max},
                                       {"access", enum_name(policy.access)},
                                       {"policy", *parse_json(wire::to_json_text(policy))}}));
  };
  for (int number = 0;; ++number) {
    EndpointPolicy before;
    before.scaling.query.query = "sum(queue)";
    EndpointPolicy after = before;
    Change change(number);
    EndpointPolicy::fields(after, change);
    if (change.changed.empty()) {
      EXPECT_GE(number, 35);
      return;
    }
    EXPECT_NE(described(before), described(after)) << change.changed << " is not described";
  }
}

TEST(Describe, NamesWhatANewerHeadKnows) {
  const Json newer = Json::object({{"warp_factor", 9}, {"place", Json::object({{"moons", true}})}});
  EXPECT_EQ(option_words(newer),
            (std::vector<OptionWords>{{"warp factor", "9"}, {"moons", "yes"}}));
}

}  // namespace
}  // namespace billow::client
