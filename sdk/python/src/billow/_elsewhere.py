"""Names that people know from other tools, and what to use here instead."""

from __future__ import annotations

import difflib
from typing import Dict, Iterable

# of the package
PACKAGE: Dict[str, str] = {
    "App": "there is no app: decorate functions with @billow.function",
    "Stub": "there is no app: decorate functions with @billow.function",
    "Image": 'use image="NAME", or `billow env save NAME` and env="NAME"',
    "Secret": 'use `billow secret set NAME` and secrets=["NAME"]',
    "Volume": 'use `billow volume add NAME …` and volumes={"/mnt/data": "NAME"}',
    "NetworkFileSystem": 'use `billow volume add NAME …` and volumes={"/mnt/data": "NAME"}',
    "CloudBucketMount": 'use inputs=["s3://…"] of jobs, or f.map_dataset("s3://…", "s3://…")',
    "Mount": "use include=[PATH, …]; modules of the project are sent by themselves",
    "Cron": 'use f.schedule("0 6 * * *")',
    "Period": 'use f.schedule("*/10 * * * *")',
    "Dict": "use a volume or a database",
    "Queue": "use a volume or a database",
    "Sandbox": 'use billow.run(["COMMAND", …])',
    "Retries": "use retries=3",
    "FunctionCall": "f.spawn(x) returns a billow.Future",
    "concurrent": "use @billow.function(concurrency=8)",
    "parameter": "use the arguments of __init__",
    "fastapi_endpoint": "use @billow.endpoint",
    "web_endpoint": "use @billow.endpoint",
    "wsgi_app": "use @billow.web_server()",
    "enable_output": "use billow.show_output(); on a terminal output is shown by default",
    "local_entrypoint": 'use if __name__ == "__main__": and run the file with Python',
    "is_local": "use not billow.is_worker()",
    "gpu": 'use gpus=1, gpu_type="H100"',
    "init": "nothing is needed before the first call; billow.connect(ADDRESS) chooses a head",
    "remote": "use @billow.function or, for a class, @billow.cls",
    "get": "f.remote(x) returns the result; of a future use future.result()",
    "put": "pass the value: large arrays travel once for each call, without copies",
    "wait": "use billow.gather(a, b), or concurrent.futures.wait with future.as_concurrent()",
    "launch": "use billow.run(…) or billow.submit(…)",
    "Task": "use billow.submit(…)",
}
# of a function, method or endpoint
FUNCTION: Dict[str, str] = {
    "remote_gen": "use remote(): of a generator it returns an iterator",
    "call": "use remote()",
    "delay": "use spawn()",
    "submit": "use spawn()",
    "spawn_map": "use map(ordered=False) or for_each()",
    "map_async": "use amap()",
    "keep_warm": "use scale(min=…)",
    "update_autoscaler": "use scale(min=…, max=…)",
    "options": "use with_options(…)",
    "get_raw_f": "use local()",
    "web_url": "decorate it with @billow.endpoint, which has url",
    "get_web_url": "decorate it with @billow.endpoint, which has url",
    "url": "decorate it with @billow.endpoint, which has url",
    "from_name": "import the function from its module",
    "lookup": "import the function from its module",
}
ENDPOINT: Dict[str, str] = {
    **dict.fromkeys(
        ("remote", "spawn", "map", "local"),
        (
            "an endpoint is called over HTTP, at its url, and runs here if it is called like a"
            " function; decorate a function with @billow.function to call it in workers"
        ),
    ),
    "web_url": "use url",
    "get_web_url": "use url",
}
FUTURE: Dict[str, str] = {
    "get": "use result()",
    "wait": "use result(timeout)",
    "get_gen": "use f.remote(), which returns an iterator",
}


def missing(owner: str, name: str, known: Dict[str, str], own: Iterable[str]) -> AttributeError:
    """What an unknown attribute raises."""
    hint = known.get(name, "")
    if not hint:
        near = difflib.get_close_matches(name, [each for each in own if each[0] != "_"], 1, 0.75)
        hint = f"did you mean {near[0]}?" if near else ""
    return AttributeError(f"{owner} has no attribute {name!r}" + (f": {hint}" if hint else ""))
