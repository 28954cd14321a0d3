"""OpenStack Swift with its S3 interface, whole in one process: objects in memory, lists of them in SQLite files.

`swift_server.py ROOT PORT ACCESS_KEY SECRET_KEY BUCKET`. It checks the signature of every request with code that has nothing to do with ours,
which is what it is here for. Run by the system's own Python: its packages are Debian's.
"""
import os
import sys

import eventlet

eventlet.monkey_patch()
# pylint: disable=wrong-import-position
from eventlet import wsgi
from swift.common import storage_policy, utils
from swift.common.ring import RingBuilder
from swift.common.swob import Request
from swift.common.wsgi import loadapp

PROXY = """[DEFAULT]
swift_dir = {etc}
user = root
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:slo]
use = egg:swift#slo
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
min_segment_size = 5242880
[filter:tempauth]
use = egg:swift#tempauth
user_{account}_{user} = {secret} .admin
"""


def main():
    root, port, (account, user), secret = (
        sys.argv[1],
        int(sys.argv[2]),
        sys.argv[3].split(":"),
        sys.argv[4],
    )
    bucket = sys.argv[5]
    etc, devices = os.path.join(root, "etc"), os.path.join(root, "devices")
    os.makedirs(etc)
    os.makedirs(os.path.join(devices, "d"))
    utils.SWIFT_CONF_FILE = os.path.join(etc, "swift.conf")
    utils.HASH_PATH_SUFFIX = utils.HASH_PATH_PREFIX = b"test"
    with open(utils.SWIFT_CONF_FILE, "w", encoding="ascii") as f:
        f.write("[swift-hash]\nswift_hash_path_suffix = test\nswift_hash_path_prefix = test\n")
    with open(os.path.join(etc, "proxy.conf"), "w", encoding="ascii") as f:
        f.write(PROXY.format(etc=etc, account=account, user=user, secret=secret))
    sockets = {
        name: eventlet.listen(("127.0.0.1", 0)) for name in ("account", "container", "object")
    }
    for name, sock in sockets.items():
        builder = RingBuilder(2, 1, 0)
        at = {"ip": "127.0.0.1", "port": sock.getsockname()[1]}
        builder.add_dev(
            {
                "id": 0,
                "region": 0,
                "zone": 0,
                "weight": 1.0,
                "device": "d",
                "meta": "",
                **at,
                **{f"replication_{k}": v for k, v in at.items()},
            }
        )
        builder.rebalance()
        builder.get_ring().save(os.path.join(etc, f"{name}.ring.gz"))
    storage_policy.reload_storage_policies()
    # They read the policies when they are loaded.
    from swift.account.server import AccountController
    from swift.container.server import ContainerController
    from swift.obj.mem_server import ObjectController

    with open(os.devnull, "w", encoding="ascii") as nowhere:
        for name, make in (
            ("account", AccountController),
            ("container", ContainerController),
            ("object", ObjectController),
        ):
            eventlet.spawn(
                wsgi.server,
                sockets[name],
                make({"devices": devices, "swift_dir": etc, "mount_check": "false"}),
                nowhere,
            )
        app = loadapp(os.path.join(etc, "proxy.conf"))
        # The bucket is made without any signature: by the proxy alone, behind the doors that look
        # at one.
        inner = app
        while not hasattr(inner, "get_controller"):
            inner = inner.app if hasattr(inner, "app") else inner._pipeline_final_app
        made = Request.blank(
            f"/v1/AUTH_{account}/{bucket}", environ={"REQUEST_METHOD": "PUT"}
        ).get_response(inner)
        if made.status_int // 100 != 2:
            sys.exit(f"the bucket cannot be made: {made.status}")
        front = eventlet.listen(("127.0.0.1", port))
        print(f"listening on {port}", flush=True)
        wsgi.server(front, app, nowhere)


if __name__ == "__main__":
    main()
