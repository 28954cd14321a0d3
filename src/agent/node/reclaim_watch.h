// Clouds announce a reclaim only to the machine itself, in the metadata at a link-local address:
// AWS two minutes ahead, GCP half a minute (an hour before maintenance of a machine with GPUs),
// Azure at least half a minute. This watches the metadata on machines whose pool says that they may
// be reclaimed, and reports a notice once.
//
// A notice is never withdrawn: an announced machine takes no more work.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/enums.h"
#include "base/json.h"
#include "net/http/http_client.h"
#include "net/loop.h"

namespace billow::agent {

enum class Cloud { aws, gcp, azure };
}  // namespace billow::agent
namespace billow {
BILLOW_ENUM_NAMES(agent::Cloud,
                  {agent::Cloud::aws, "aws"},
                  {agent::Cloud::gcp, "gcp"},
                  {agent::Cloud::azure, "azure"});
}  // namespace billow
namespace billow::agent {

// Interprets a cloud's answer: the reason of the reclaim, or nothing.
std::optional<std::string> aws_notice(int status, std::string_view instance_action);
std::optional<std::string> gcp_notice(std::string_view preempted,
                                      std::string_view maintenance_event);
// Azure shows every machine of a set the events of all; only this machine's count. Without a name
// every event counts.
std::optional<std::string> azure_notice(const Json& events, std::string_view own_name);

class ReclaimWatch {
 public:
  struct Options {
    std::optional<Cloud> cloud;  // none: the one that answers
    std::string metadata_url = "http://169.254.169.254:80";
    Duration every = seconds(5);
  };
  static Result<std::unique_ptr<ReclaimWatch>> create(
      net::Loop& loop, Options options, std::function<void(std::string reason)> on_notice);

 private:
  using Answer = std::function<void(const Result<net::Response>&)>;
  ReclaimWatch(net::Loop& loop, Options options, std::function<void(std::string)> on_notice)
      : loop_(loop), options_(std::move(options)), on_notice_(std::move(on_notice)) {}
  void look();
  void look_aws();
  void look_gcp();
  void look_azure();
  void recognize();
  void recognized(Cloud cloud);
  void ask(net::Method method, std::string target, net::Headers headers, Answer answer);
  void done(std::optional<std::string> reason);

  net::Loop& loop_;
  Options options_;
  std::function<void(std::string)> on_notice_;
  net::Endpoint endpoint_;
  std::unique_ptr<net::HttpClient> client_;
  net::Timer timer_;
  bool busy_ = false, told_unknown_ = false;
  std::string aws_token_, azure_name_;
};

}  // namespace billow::agent
