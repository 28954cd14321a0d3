"""A function as a job of its own: `python -m billow._once`, in the directory that holds the pickled
function and its arguments. Schedules start it. The job fails if the function raises."""

from __future__ import annotations

import asyncio
import inspect
import pickle


def main() -> None:
    with open("function.pkl", "rb") as file:
        function = pickle.load(file)
    with open("arguments.pkl", "rb") as file:
        given, named = pickle.load(file)
    value = function(*given, **named)
    if inspect.isgenerator(value):
        for item in value:
            print(item, flush=True)
    elif inspect.isawaitable(value):
        value = asyncio.run(_awaited(value))
    if value is not None and not inspect.isgenerator(value):
        print(value)


async def _awaited(value: object) -> object:
    return await value  # type: ignore[misc]


if __name__ == "__main__":
    main()
