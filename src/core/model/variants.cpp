// What the wrapped variants of events and commands leave to be compiled once.
#include "core/model/command.h"

namespace billow {

EventBody::EventBody() = default;
EventBody::EventBody(EventVariant&& body) : EventVariant(std::move(body)) {}
EventBody::EventBody(const EventBody&) = default;
EventBody::EventBody(EventBody&&) noexcept = default;
EventBody& EventBody::operator=(const EventBody&) = default;
EventBody& EventBody::operator=(EventBody&&) noexcept = default;
EventBody::~EventBody() = default;

Command::Command() = default;
Command::Command(const Command&) = default;
Command::Command(Command&&) noexcept = default;
Command& Command::operator=(const Command&) = default;
Command& Command::operator=(Command&&) noexcept = default;
Command::~Command() = default;

}  // namespace billow
