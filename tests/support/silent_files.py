"""A file system that answers until it is told not to: a file server that goes away."""
import ctypes
import os
import select
import struct
import threading

LIBC = ctypes.CDLL(None, use_errno=True)
NO_DEVICES, DETACH = 6, 2  # MS_NOSUID | MS_NODEV, MNT_DETACH
INIT, GETATTR, ACCESS, FORGETS = 26, 3, 34, (2, 42)
NOT_SUPPORTED = -38
DIRECTORY = struct.pack("<QII6Q10I", 0, 0, 0, 1, 4096, 8, 0, 0, 0, 0, 0, 0, 0o40755, 2, *[0] * 5)
WELCOME = struct.pack("<IIIIHHIIHHI7I", 7, 31, 65536, 0, 12, 9, 65536, 1, 32, *[0] * 9)


class SilentFiles:
    """An empty directory of this user's at `path`."""

    def __init__(self, path):
        self.path = path
        os.makedirs(path)
        self.device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
        if LIBC.mount(b"test", path.encode(), b"fuse", NO_DEVICES, options.encode()) != 0:
            os.close(self.device)
            raise OSError(ctypes.get_errno(), "no file system can be served here")
        self.serves = True
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self):
        while self.serves:
            if not select.select([self.device], [], [], 0.1)[0]:
                continue
            request = os.read(self.device, 1 << 17)
            _, kind, number = struct.unpack_from("<IIQ", request)
            if kind in FORGETS:
                continue
            answers = {INIT: WELCOME, GETATTR: DIRECTORY, ACCESS: b""}
            body = answers.get(kind, b"")
            error = 0 if kind in answers else NOT_SUPPORTED
            os.write(self.device, struct.pack("<IiQ", 16 + len(body), error, number) + body)

    def fall_silent(self):
        self.serves = False
        self.thread.join()

    def close(self):
        self.fall_silent()
        LIBC.umount2(self.path.encode(), DETACH)
        os.close(self.device)
