"""A child process in which a plugin is loaded, so that it is named if it ends its process."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable

Loaded = tuple[list[str], str, str]
"""Names of the plugin's hooks; what is wrong with it, and what may be meant otherwise, "" if nothing is."""


def in_a_child(load: Callable[[], Loaded], plugin: str) -> Loaded:
    """What `load` returns. If its process ends without that, a sentence says of which plugin."""
    sys.stdout.flush()
    sys.stderr.flush()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _report(load, write)
    os.close(write)
    with open(read, "rb") as pipe:
        answer = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if answer:
        hooks, sentence, hint = json.loads(answer)
        return hooks, sentence, hint
    sentence = f"plugin {plugin}: has ended its process while it was loaded ({_how(status)}); remove what does that"
    return [], sentence, ""


def _report(load: Callable[[], Loaded], write: int) -> None:
    """Ends the process."""
    status = 1
    try:
        answer = json.dumps(load()).encode()
        sys.stdout.flush()
        sys.stderr.flush()
        with open(write, "wb") as pipe:
            pipe.write(answer)
        status = 0
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _how(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"by {signal.Signals(-status).name}"
