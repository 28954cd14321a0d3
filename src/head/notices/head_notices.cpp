// The head's part in notices: the two that send them, and the mail server.
#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "head/head.h"

namespace billow::head {
namespace {

Result<std::optional<net::SmtpServer>> mail_server(const HeadOptions& options) {
  if (options.smtp.empty())
    return std::optional<net::SmtpServer>();
  net::SmtpServer server = BILLOW_TRY(net::parse_smtp(options.smtp));
  server.from = options.smtp_from.empty() ? server.user : options.smtp_from;
  if (!net::is_mail_address(server.from))
    return fail(Code::invalid, "the sender of mails is missing or is not a mail address",
                "add --smtp-from billow@example.org");
  server.trust.ca_path = options.smtp_ca;
  if (!options.smtp_password_file.empty()) {
    auto password = read_file(options.smtp_password_file, 4096);
    if (!password)
      return pass(password.error(), "--smtp-password-file");
    server.password = std::string(trim(*password));
  } else {
    server.user.clear();  // a name without a password is the sender's, not a login
  }
  return std::optional(std::move(server));
}

}  // namespace

Status Head::prepare_notices() {
  const auto engine = [this]() -> Engine& {
    return *engine_;
  };
  notifier_ = BILLOW_TRY(
      Notifier::create(loop_, {notify_key_, options_.notify_command, options_.webhook_hosts, engine,
                               &journal(), &keeper_, &clock_}));
  personal_ = BILLOW_TRY(PersonalNotices::create(
      loop_, {notify_key_, options_.webhook_hosts, BILLOW_TRY(mail_server(options_)), engine,
              &keeper_, &clock_}));
  return {};
}

void Head::start_notices() {
  personal_->begin();
  every(limits::notice_tick, [this] {
    if (!state().notices.targets.empty())
      engine_->execute(NoticeTick{}, {"head", ""}, {});
  });
}

}  // namespace billow::head
