# Jupyter behind the gateway: who may come in is the gateway's business (--access key), and the path
# below which it is served is put back,
# for Jupyter writes whole paths into its pages.
import os

from jupyter_server.serverapp import ServerWebApplication

prefix = "/f/" + os.environ["BILLOW_ENDPOINT"] + "/"
c = get_config()  # noqa: F821  (Jupyter's own)
c.ServerApp.ip = "127.0.0.1"
c.ServerApp.port = int(os.environ["PORT"])
c.ServerApp.port_retries = 0
c.ServerApp.open_browser = False
c.ServerApp.allow_root = True
c.ServerApp.allow_remote_access = True
c.ServerApp.base_url = prefix
c.ServerApp.token = ""
c.ServerApp.password = ""

plain = ServerWebApplication.find_handler


def find_handler(self, request, **more):
    if not request.path.startswith(prefix):
        request.path = prefix + request.path.lstrip("/")
        request.uri = prefix + request.uri.lstrip("/")
    return plain(self, request, **more)


ServerWebApplication.find_handler = find_handler
