#include "api/rights.h"

namespace billow::api {

Status allowed(const control::Principal& who, Need need) {
  const auto forbidden = [](std::string why, std::string hint = {}) {
    return fail(Code::forbidden, std::move(why), std::move(hint));
  };
  switch (need) {
    case Need::nothing:
      return {};
    case Need::node:
      return who.scope == TokenScope::node ? Status{}
                                           : forbidden("only a node's credential may do this",
                                                       "make one: billow token create --node");
    case Need::join:
      return who.scope == TokenScope::join ? Status{}
                                           : forbidden("only a join token may do this",
                                                       "make one: billow token create --node");
    case Need::look:
      if (who.scope == TokenScope::join)
        return forbidden("a join token may do nothing but let machines join");
      return who.scope != TokenScope::node
                 ? Status{}
                 : forbidden("a node's credential may do nothing but join");
    case Need::work:
      if (const Status look = allowed(who, Need::look); !look)
        return look;
      return who.scope != TokenScope::read ? Status{} : forbidden("this token may only look");
    case Need::full:
      if (const Status work = allowed(who, Need::work); !work)
        return work;
      return who.scope == TokenScope::full
                 ? Status{}
                 : forbidden("this token is for the jobs of one project; this needs a full one",
                             "use your own token, or make one: billow token create NAME");
    case Need::oversee:
      return who.role == Role::admin &&
                     (who.scope == TokenScope::full || who.scope == TokenScope::read)
                 ? Status{}
                 : forbidden("only an admin may see this");
    case Need::files:
      return who.scope == TokenScope::node ? Status{} : allowed(who, Need::work);
    case Need::admin:
      return who.scope == TokenScope::full && who.role == Role::admin
                 ? Status{}
                 : forbidden("only an admin may do this");
  }
  return forbidden("not allowed");
}

}  // namespace billow::api
