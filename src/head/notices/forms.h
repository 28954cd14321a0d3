// Messages to users in the form that each service takes. Pure.
//
// Texts contain names that users chose. Each form escapes what its service would interpret, so that
// a job's name cannot mention everybody or add a header to a mail.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "core/model/notice.h"

namespace billow::head {

// Several notices in one message, oldest first. At least one.
struct NoticeMessage {
  std::vector<PersonalNotice> notices;
  std::string id;  // of the message, the same if it is sent again
  std::string title() const;
  std::string text() const;  // with the titles, if there are several
};

// https://api.slack.com/messaging/webhooks
std::string slack_body(const NoticeMessage& message);
// https://discord.com/developers/docs/resources/webhook#execute-webhook
std::string discord_body(const NoticeMessage& message);
// https://docs.ntfy.sh/publish/#publish-as-json: posted to the server, not to the topic.
std::string ntfy_body(const NoticeMessage& message, const std::string& topic);

struct MailHeaders {
  std::string from, to;
  WallTime date;
};
std::string mail_text(const NoticeMessage& message, const MailHeaders& headers);

}  // namespace billow::head
