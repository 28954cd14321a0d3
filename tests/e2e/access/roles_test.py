"""Roles by permission: every role against every route, roles that admins make, and what nobody can
give to others because they do not have it themselves. Service accounts and new values of tokens."""
import os
import re
import unittest

from rig import SOURCE, RigTest, poll

REFUSED = "this needs the permission"
# Not called by those who may: they end the head, the caller's own token, or never answer.
NOT_CALLED = {
    ("POST", "/v1/shutdown"),
    ("DELETE", "/v1/session"),
    ("GET", "/v1/live"),
    ("GET", "/v1/gateway"),
}


def table_rows(page, title):
    """The rows of a table of the page, without its head."""
    part = page.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    rows = [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in part.splitlines()
        if line.startswith("|")
    ]
    return rows[0], rows[2:]


class RolesTest(RigTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokens = {"root": cls.rig.token()}
        cls.rig.ok("project", "create", "pa")
        cls.rig.ok("project", "create", "pb")

    @classmethod
    def user(cls, name, project=None, role="member", installation="member"):
        cls.rig.ok("user", "create", name, "--unix-name", "nobody", "--role", installation)
        if project:
            cls.rig.ok("project", "member", project, name, "--role", role)
        cls.tokens[name] = cls.rig.json("token", "create", name, "--user", name)["token"]

    def ask(self, who, method, path, body=None):
        return self.rig.api(method, path, body, token=self.tokens[who])


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class RolesAndRoutes(RolesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.rig.ok("role", "create", "accountant", "--allow", "money.read,money.set,prices.set")
        for role in ("viewer", "member", "operator", "auditor", "admin", "accountant"):
            cls.user(f"p-{role}", "pa", role)
            if role not in ("viewer", "member"):
                cls.user(f"i-{role}", None, "", role)

    def test_the_page_of_rights_is_current(self):
        path = os.path.join(SOURCE, "docs/rights.md")
        with open(path, encoding="utf-8") as f:
            self.assertEqual(
                f.read(),
                self.rig.ok("help", "--rights").text,
                "run: billow help --rights > docs/rights.md",
            )

    def test_every_role_on_every_route(self):
        page = self.rig.ok("help", "--rights").text
        _, permissions = table_rows(page, "Permissions")
        of_project = {row[0] for row in permissions if row[1] == "a project"}
        head, rows = table_rows(page, "Built-in roles")
        allow = {role: set() for role in head[1:]}
        for row in rows:
            for role, cell in zip(head[1:], row[1:]):
                if cell:
                    allow[role].add(row[0])
        allow["accountant"] = {"money.read", "money.set", "prices.set"}
        _, routes = table_rows(page, "Routes")
        self.assertGreater(len(routes), 130)
        calls = refusals = 0
        for who, token in self.tokens.items():
            if who == "root":
                continue
            where, role = who.split("-", 1)
            has = allow[role] if where == "i" else allow[role] & of_project
            for name, token_kind, needed in routes:
                if token_kind in ("none", "node", "join"):
                    continue
                method, pattern = name.split(" ", 1)
                needs = set() if needed in ("own", "") else set(needed.split(", "))
                expected = not needs or bool(needs & has)
                if expected and (method, pattern) in NOT_CALLED:
                    continue
                path = re.sub(r"\{[^}]*\}", "987654", pattern)
                body = None if method in ("GET", "DELETE") else {}
                answer = self.rig.api(method, path, body, token=token)
                refused = answer.status == 403 and REFUSED in str(answer.body)
                calls += 1
                refusals += refused
                with self.subTest(who=who, route=name):
                    self.assertEqual(refused, not expected, (who, name, answer))
        self.assertGreater(calls, 1000)
        self.assertGreater(refusals, 300)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class OwnRoles(RolesTest):
    def test_a_role_allows_what_it_lists_and_nothing_else(self):
        self.rig.ok("role", "create", "watcher", "--allow", "jobs.read")
        self.user("wanda", "pa", "watcher")
        self.user("max", "pa", "member")
        job = self.ask(
            "max", "POST", "/v1/jobs", {"spec": {"argv": ["sleep", "1000"], "cwd": "/"}}
        ).json["id"]
        self.assertEqual(self.ask("wanda", "GET", f"/v1/jobs/{job}").status, 200)
        self.assertEqual(self.ask("wanda", "POST", f"/v1/jobs/{job}/stop", {}).status, 403)
        self.assertEqual(self.ask("wanda", "GET", "/v1/cost").status, 403)
        # A change of the role counts at once.
        self.rig.ok("role", "create", "watcher", "--allow", "jobs.read,jobs.any,money.read")
        self.assertEqual(self.ask("wanda", "GET", "/v1/cost").status, 200)
        self.assertEqual(
            self.ask("wanda", "POST", f"/v1/jobs/{job}/stop", {"force": True}).status, 200
        )
        refused = self.rig.cli("role", "delete", "watcher")
        self.assertNotEqual(refused.code, 0)
        self.assertIn("wanda in project pa", refused.errors)
        self.rig.ok("project", "member", "pa", "wanda", "--role", "viewer")
        self.rig.ok("role", "delete", "watcher")
        self.assertEqual(self.ask("wanda", "POST", f"/v1/jobs/{job}/stop", {}).status, 403)
        # Roles survive the head.
        self.rig.ok("role", "create", "kept", "--allow", "nodes.drain")
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        roles = {r["name"]: r["allow"] for r in self.rig.json("role", "list")["roles"]}
        self.assertEqual(roles["kept"], ["nodes.drain"])
        self.assertNotIn("watcher", roles)

    def test_nobody_gives_more_than_they_have(self):
        self.rig.ok("role", "create", "people", "--allow", "users.change,users.read,jobs.read")
        self.user("pia", None, "", "people")
        self.user("ada", None, "", "admin")
        self.user("mia", "pa", "member")
        self.user("head-of-pb", "pb", "admin")
        for method, path, body in (
            ("POST", "/v1/users", {"name": "eve", "role": "admin"}),
            ("POST", "/v1/users", {"name": "eve", "role": "operator"}),
            ("PUT", "/v1/users/pia", {"role": "admin"}),
            ("PUT", "/v1/users/ada", {"disabled": True}),
            ("PUT", "/v1/roles/people", {"allow": ["users.change", "nodes.drain"]}),
            ("PUT", "/v1/roles/mine", {"allow": ["head.control"]}),
            ("POST", "/v1/users/ada/tokens", {"name": "steal"}),
            ("POST", "/v1/users/mia/tokens", {"name": "steal"}),
            ("PUT", "/v1/users/mia", {"login": "company/1"}),
        ):
            answer = self.ask("pia", method, path, body)
            self.assertEqual(answer.status, 403, (path, body, answer))
        self.assertEqual(self.ask("pia", "POST", "/v1/users", {"name": "new"}).status, 201)
        self.assertEqual(self.ask("pia", "PUT", "/v1/users/mia", {"disabled": True}).status, 200)
        # An admin of a project gives what is of the project, there and nowhere else.
        for project, role, status in (
            ("pb", "member", 200),
            ("pb", "admin", 200),
            ("pb", "operator", 200),
            ("pb", "nonsense", 400),
            ("pa", "viewer", 404),
        ):
            answer = self.ask(
                "head-of-pb", "PUT", f"/v1/projects/{project}/members/new", {"role": role}
            )
            self.assertEqual(answer.status, status, (project, role, answer))

    def test_everybody_is_told_what_they_may_do(self):
        """The dashboard and `billow top` go by this, not by the names of roles."""
        self.user("opal", None, "", "operator")
        self.user("vic", "pa", "viewer")
        self.rig.ok("role", "create", "keeper", "--allow", "secrets.read,secrets.set")
        self.user("kim", "pa", "keeper")
        you = {u: self.ask(u, "GET", "/v1/status").json["you"] for u in ("opal", "vic", "kim")}
        self.assertIn("nodes.drain", you["opal"]["permissions"])
        self.assertNotIn("users.change", you["opal"]["permissions"])
        self.assertEqual(you["vic"]["permissions"], [])
        self.assertIn("jobs.read", you["vic"]["permissions_in"]["pa"])
        self.assertNotIn("jobs.run", you["vic"]["permissions_in"]["pa"])
        self.assertEqual(you["kim"]["permissions_in"], {"pa": ["secrets.read", "secrets.set"]})
        # A read-only token of an admin may look, and change nothing.
        token = self.rig.api("POST", "/v1/tokens", {"name": "ro", "scope": "read"}).json["token"]
        looks = self.rig.api("GET", "/v1/status", token=token).json["you"]["permissions"]
        self.assertIn("audit.read", looks)
        self.assertNotIn("nodes.drain", looks)

    def test_the_operator_keeps_machines_running_and_sees_no_secret(self):
        self.user("otto", None, "", "operator")
        node = self.rig.json("nodes")["nodes"][0]["name"]
        self.assertEqual(
            self.ask("otto", "POST", f"/v1/nodes/{node}/drain", {"reason": "x"}).status, 200
        )
        self.assertEqual(self.ask("otto", "POST", f"/v1/nodes/{node}/undrain", {}).status, 200)
        self.rig.ok("secret", "set", "S", "--project", "pa", stdin=b"value-of-s")
        self.assertEqual(self.ask("otto", "GET", "/v1/secrets?project=pa").status, 403)
        self.assertEqual(
            self.ask(
                "otto",
                "POST",
                "/v1/jobs",
                {"spec": {"argv": ["true"], "cwd": "/"}, "project": "pa"},
            ).status,
            403,
        )
        self.user("aud", None, "", "auditor")
        self.assertEqual(self.ask("aud", "GET", "/v1/events").status, 200)
        self.assertEqual(self.ask("aud", "POST", f"/v1/nodes/{node}/drain", {}).status, 403)


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class ServiceAccounts(RolesTest):
    def test_a_service_account_has_tokens_and_cannot_sign_in(self):
        self.rig.ok("user", "create", "robot", "--unix-name", "nobody", "--service")
        self.rig.ok("project", "member", "pa", "robot")
        made = self.rig.json("token", "create", "ci", "--user", "robot")
        self.tokens["robot"] = made["token"]
        self.assertTrue(made["expires_at"], "tokens expire by default")
        self.assertEqual(self.ask("robot", "GET", "/v1/status").json["you"]["user"], "robot")
        answer = self.rig.api("POST", "/v1/session", {"token": made["token"]}, token="")
        self.assertEqual(answer.status, 403, answer)
        self.assertIn("service account", answer.json["detail"])
        kinds = {u["name"]: u["service"] for u in self.rig.json("user", "list")["users"]}
        self.assertTrue(kinds["robot"])

    def test_only_admins_have_tokens_that_never_expire(self):
        self.user("mo", "pa")
        never = {"name": "x", "life_s": -1}
        self.assertEqual(self.ask("mo", "POST", "/v1/tokens", never).status, 403)
        self.assertEqual(self.ask("root", "POST", "/v1/tokens", never).status, 201)

    def test_the_last_use_of_a_token_outlives_the_head(self):
        self.user("luis", "pa")
        self.assertEqual(self.ask("luis", "GET", "/v1/status").status, 200)

        def last_use():
            listed = self.ask("root", "GET", "/v1/tokens").json["tokens"]
            return next(t.get("last_used_at") for t in listed if t["name"] == "luis")

        used = last_use()
        self.assertTrue(used)
        self.rig.ok("down")
        self.rig.up()
        self.assertEqual(last_use(), used)

    def test_a_rotated_token_works_with_both_values_for_a_while(self):
        self.user("rita", "pa")
        before = self.tokens["rita"]
        listed = self.ask("rita", "GET", "/v1/tokens").json["tokens"]
        mine = [t for t in listed if t["name"] == "rita"][0]
        self.assertIn("last_used_at", mine)
        child = self.ask("rita", "POST", "/v1/tokens", {"name": "child"}).json["token"]
        made = self.ask("rita", "POST", f"/v1/tokens/{mine['id']}/rotate", {"grace_s": 20})
        self.assertEqual(made.status, 200, made)
        after = made.json["token"]
        self.assertNotEqual(after.split(".")[0], before.split(".")[0])
        for value in (before, after, child):
            self.assertEqual(self.rig.api("GET", "/v1/status", token=value).status, 200)
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        poll(
            lambda: self.rig.api("GET", "/v1/status", token=before).status == 401,
            "the end of the old value",
            60,
        )
        answer = self.rig.api("GET", "/v1/status", token=before)
        self.assertIn("was rotated", answer.json["detail"])
        for value in (after, child):
            self.assertEqual(self.rig.api("GET", "/v1/status", token=value).status, 200)
        # Another user's token is not there, and root's is nobody's to rotate.
        self.user("rolf", "pa")
        self.tokens["rita"] = after
        answer = self.ask("rolf", "POST", f"/v1/tokens/{mine['id']}/rotate", {})
        self.assertEqual(answer.status, 404, answer)


if __name__ == "__main__":
    unittest.main()
