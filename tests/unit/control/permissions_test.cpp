// What roles allow, where, and with which tokens.
#include "core/control/decide/permissions.h"

#include "world.h"

namespace billow::control {
namespace {

using enum Permission;

struct Permissions : testing::Test {
  World w;
  const State& state() const { return w.core.state(); }
  void user(const std::string& name, const std::string& role = roles::member) {
    w.must(AddUser{name, name, role});
  }
  ProjectId project(const std::string& name) const { return state().project_by_name(name)->id; }
  Principal who(const std::string& name, TokenScope scope = TokenScope::full) const {
    Principal out;
    out.user = state().user_by_name(name)->id;
    out.name = name;
    out.scope = scope;
    return out;
  }
  UserId id(const std::string& name) const { return state().user_by_name(name)->id; }
};

TEST_F(Permissions, TheTableNamesEachPermissionOnce) {
  EXPECT_EQ(permission_table().size(), EnumNames<Permission>::table.size());
  for (std::size_t i = 0; i < permission_table().size(); ++i)
    EXPECT_EQ(static_cast<std::size_t>(permission_table()[i].permission), i);
}

TEST_F(Permissions, ARoleInAProjectCountsThereAndOnlyForWhatIsOfAProject) {
  w.must(AddProject{"pa"});
  w.must(AddProject{"pb"});
  user("ada");
  w.must(SetMember{"pa", "ada", roles::admin});
  EXPECT_TRUE(may(state(), who("ada"), secrets_set, project("pa")));
  EXPECT_FALSE(may(state(), who("ada"), secrets_set, project("pb")));
  EXPECT_FALSE(may(state(), who("ada"), nodes_drain));
  EXPECT_FALSE(may(state(), who("ada"), jobs_read));
  EXPECT_TRUE(sees(state(), who("ada"), project("pa")));
  EXPECT_FALSE(sees(state(), who("ada"), project("pb")));
}

TEST_F(Permissions, MemberAndViewerOnTheInstallationAllowNothing) {
  user("mo", roles::member);
  user("vi", roles::viewer);
  for (const char* name : {"mo", "vi"})
    EXPECT_TRUE(permissions_of(state(), who(name)).empty()) << name;
  user("ot", roles::operate);
  EXPECT_TRUE(may(state(), who("ot"), nodes_drain));
  w.must(AddProject{"pa"});
  EXPECT_TRUE(may(state(), who("ot"), jobs_any, project("pa")));
  EXPECT_FALSE(may(state(), who("ot"), jobs_run, project("pa")));
  EXPECT_FALSE(may(state(), who("ot"), secrets_read, project("pa")));
}

TEST_F(Permissions, AScopeOnlyTakesAway) {
  user("ada", roles::admin);
  w.must(AddProject{"pa"});
  w.must(AddProject{"pb"});
  for (const PermissionInfo& each : permission_table()) {
    EXPECT_TRUE(may(state(), who("ada"), each.permission)) << enum_name(each.permission);
    EXPECT_EQ(may(state(), who("ada", TokenScope::read), each.permission), each.reads);
    for (const TokenScope scope : {TokenScope::node, TokenScope::join, TokenScope::gateway})
      EXPECT_FALSE(may(state(), who("ada", scope), each.permission));
  }
  Principal submits = who("ada", TokenScope::submit);
  submits.project = project("pa");
  EXPECT_TRUE(may(state(), submits, jobs_run, project("pa")));
  EXPECT_FALSE(may(state(), submits, jobs_run, project("pb")));
  EXPECT_FALSE(may(state(), submits, secrets_set, project("pa")));
  EXPECT_TRUE(permissions_of(state(), submits).empty());
}

TEST_F(Permissions, ARoleThatIsGoneAllowsNothing) {
  w.must(SetRole{"watcher", {jobs_read, jobs_read, audit_read}, {}});
  EXPECT_EQ(state().roles.at("watcher").allow, (std::vector{jobs_read, audit_read}));
  user("wa", "watcher");
  EXPECT_TRUE(may(state(), who("wa"), audit_read));
  EXPECT_FALSE(w.run(RemoveRole{"watcher"})) << "somebody has it";
  w.must(SetUser{.name = "wa", .role = roles::member});
  w.must(RemoveRole{"watcher"});
  EXPECT_FALSE(w.run(SetUser{.name = "wa", .role = "watcher"}));
  EXPECT_FALSE(w.run(SetRole{"admin", {jobs_read}, {}})) << "built in";
  EXPECT_FALSE(w.run(SetRole{"empty", {}, {}}));
  w.check_replay();
}

TEST_F(Permissions, NobodyGivesMoreThanTheyHave) {
  w.must(SetRole{"people", {users_change, users_read}, {}});
  user("pia", "people");
  user("ada", roles::admin);
  const UserId pia = id("pia");
  EXPECT_FALSE(w.run(AddUser{"eve", "eve", roles::admin, pia}));
  EXPECT_TRUE(w.run(AddUser{"eve", "eve", roles::member, pia}));
  EXPECT_FALSE(w.run(SetUser{.name = "pia", .role = roles::admin, .by = pia}));
  EXPECT_FALSE(w.run(SetUser{.name = "ada", .state = UserState::disabled, .by = pia}));
  EXPECT_FALSE(w.run(SetRole{"people", {users_change, head_control}, pia}));
  EXPECT_TRUE(w.run(SetUser{.name = "eve", .state = UserState::disabled, .by = pia}));
  EXPECT_FALSE(w.run(CreateToken{.name = "t", .hash = "t", .user = "ada", .made_by = "pia"}));
}

TEST_F(Permissions, ARotatedTokenHasTwoValuesForAWhile) {
  user("ana2");
  w.must(CreateToken{.name = "t", .hash = "one", .user = "ana2", .life = hours(10)});
  const TokenId token = state().token_by_hash.at("one");
  w.must(RotateToken{token, "two", hours(20), hours(1)});
  EXPECT_EQ(authenticate(state(), "one", w.now)->token, token);
  EXPECT_EQ(authenticate(state(), "two", w.now)->token, token);
  EXPECT_FALSE(authenticate(state(), "one", w.now + hours(1)));
  EXPECT_TRUE(authenticate(state(), "two", w.now + hours(19)));
  EXPECT_FALSE(authenticate(state(), "two", w.now + hours(20)));
  // The value before the last is gone at once.
  w.must(RotateToken{token, "three", hours(20), hours(1)});
  EXPECT_FALSE(authenticate(state(), "one", w.now));
  EXPECT_FALSE(w.run(RotateToken{token, "two", hours(1), hours(1)})) << "a value comes once";
  w.check_replay();
  w.must(RevokeToken{token});
  for (const char* value : {"one", "two", "three"})
    EXPECT_FALSE(authenticate(state(), value, w.now)) << value;
  EXPECT_TRUE(check_invariants(state()));
}

TEST_F(Permissions, ResealingLeavesWhatHasChangedMeanwhile) {
  const auto set = [&](const std::string& name, const std::string& sealed) {
    w.must(SetSecret{"default", id("ana"), name, sealed});
  };
  set("a", "a1");
  set("b", "b1");
  const ProjectId p = project("default");
  const WallTime at = state().secrets.at({p, "a"}).at;
  set("b", "b2");
  w.must(ResealSecrets{.was = {{p, "a", "a1"}, {p, "b", "b1"}, {p, "c", "c1"}},
                       .secrets = {{p, "a", "A"}, {p, "b", "B"}, {p, "c", "C"}},
                       .pools_were = {},
                       .pools = {}});
  EXPECT_EQ(state().secrets.at({p, "a"}).sealed, "A");
  EXPECT_EQ(state().secrets.at({p, "a"}).at, at);
  EXPECT_EQ(state().secrets.at({p, "b"}).sealed, "b2");
  EXPECT_FALSE(state().secrets.contains({p, "c"}));
  w.check_replay();
}

}  // namespace
}  // namespace billow::control
