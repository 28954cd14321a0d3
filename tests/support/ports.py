"""Ports for servers that must be told theirs beforehand: free now, and below those the kernel gives to outgoing connections, of which
every test on the machine makes many."""
import random
import socket


def free_port(*offsets):
    """One that is free, with those at the given distances above it."""
    for base in random.sample(range(12000, 32000), 500):
        held = []
        try:
            for offset in (0, *offsets):
                held.append(socket.create_server(("", base + offset)))
            return base
        except OSError:
            continue
        finally:
            for s in held:
                s.close()
    raise RuntimeError("no free port between 12000 and 32000")
