"""A TCP proxy that cuts all of its connections when it gets SIGUSR1.

    python3 cut_proxy.py LISTEN_HOST LISTEN_PORT TARGET_HOST TARGET_PORT
"""
import os
import signal
import socket
import sys
import threading

connections = set()
lock = threading.Lock()


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    cut((source, sink))


def cut(pair):
    for one in pair:
        try:
            one.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
    with lock:
        connections.difference_update(pair)


def cut_all(*_):
    cut(tuple(connections))


def serve(listen, target):
    server = socket.create_server(listen)
    signal.signal(signal.SIGUSR1, cut_all)
    print("ready", os.getpid(), flush=True)
    while True:
        near, _ = server.accept()
        try:
            far = socket.create_connection(target, timeout=5)
            far.settimeout(None)
        except OSError:
            near.close()
            continue
        with lock:
            connections.update((near, far))
        for pair in ((near, far), (far, near)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


if __name__ == "__main__":
    serve((sys.argv[1], int(sys.argv[2])), (sys.argv[3], int(sys.argv[4])))
