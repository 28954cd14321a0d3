"""Maps a folder of images: each is read here, measured in workers, and the results come as they are ready.

    python3 images.py FOLDER        (PGM or PPM files; without a folder, it makes some)
"""
import os
import sys
import tempfile

import billow


@billow.function(max=4)
def brightness(name, content):
    """The mean of the pixels of a binary PGM (P5) or PPM (P6) file."""
    header, pixels = content.split(b"\n", 1)
    kind, width, height, largest = header.split()
    if kind not in (b"P5", b"P6"):
        raise ValueError(f"{name} is not a PGM or PPM file")
    channels = 3 if kind == b"P6" else 1
    expected = int(width) * int(height) * channels
    return name, sum(pixels[:expected]) / expected / int(largest)


def images(folder):
    """Read one by one, as workers become free: the folder may be larger than memory."""
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            yield name, file.read()


def make_images(folder, count=20):
    for number in range(count):
        with open(os.path.join(folder, f"{number:03}.pgm"), "wb") as file:
            file.write(b"P5 64 64 255\n" + bytes([12 * number]) * 64 * 64)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        folder = sys.argv[1] if len(sys.argv) > 1 else made
        if folder == made:
            make_images(made)
        for name, value in brightness.starmap(images(folder), ordered=False):
            print(f"{name} {value:.2f}")
