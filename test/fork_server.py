# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A fork server: Python starts at once, in a process that has imported what takes most of the time of a start.

    path = start("numpy", "torch")                   in the process whose end is that of the server
    python -IS fork_server.py PATH -m MODULE ..      as ``python -m MODULE ..``; so are ``-c TEXT`` and ``FILE``

Where the system has no server (``is_supported``), the command is plain Python, and the same but slower.

A call has the arguments, the environment, the folder and the standard streams of its client, which ends with its exit
status. The server itself does nothing but import, so what a call finds is what a new process that has imported finds.
"""

from __future__ import annotations

import os
import socket
import sys

REQUEST_BYTES = 1 << 20

#: The exit status of a call without one, as a shell has it of a process that aborts.
ABORTED = 134

#: Servers by their sockets, whose pipes must stay open.
_servers: dict[str, object] = {}


def is_supported() -> bool:
    """Return whether this system has what a server needs: macOS has no local sockets that keep messages apart."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET):
            return hasattr(os, "fork")
    except (AttributeError, OSError):
        return False


def start(*modules: str) -> str:
    """Start a server that has imported the modules and ends with this process.

    Return the path of its socket; empty where there can be none.
    """
    import subprocess
    import tempfile

    if not is_supported():
        return ""
    path = os.path.join(tempfile.mkdtemp(prefix="fork-server-"), "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(64)
        command = [sys.executable, __file__, "--serve", path, str(listener.fileno()), *modules]
        _servers[path] = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    return path


def command(path: str) -> list[str]:
    """The command that stands for ``python``."""
    return [sys.executable, "-IS", __file__, path] if path else [sys.executable]


def serve(path: str, listener: socket.socket, modules: list[str]) -> None:
    """Fork for each call until the standard input ends."""
    import importlib
    import select
    import shutil
    import signal

    sys.path.pop(0)
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while sys.stdin.fileno() not in select.select([listener, sys.stdin.fileno()], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listener.close()
            _answer(connection)
        connection.close()
    shutil.rmtree(os.path.dirname(path))


def _answer(connection: socket.socket) -> None:
    """Run a call, send its exit status, and end this process."""
    import traceback

    status = 1
    try:
        status = _status(_received(connection))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        connection.send(bytes([status]))
        os._exit(status)


def _received(connection: socket.socket) -> list[str]:
    """Take over the folder, the environment and the streams of a client; return its arguments."""
    request, streams, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    folder, count, *strings = request.decode(errors="surrogateescape").split("\0")
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variable.split("=", 1) for variable in strings[int(count) :])
    return strings[: int(count)]


def _status(arguments: list[str]) -> int:
    """Run what the arguments of Python name; return its exit status."""
    try:
        _run(arguments)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return (end.code or 0) & 255
    return 0


def _run(arguments: list[str]) -> None:
    import runpy
    import types

    first, *rest = arguments
    sys.path[:0] = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    if first == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(first)))
        sys.argv = arguments
        runpy.run_path(first, run_name="__main__")


def call(path: str, arguments: list[str]) -> int:
    """Have the server run what the arguments of Python name; return the exit status."""
    variables = [f"{name}={value}" for name, value in os.environ.items()]
    strings = [os.getcwd(), str(len(arguments)), *arguments, *variables]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        socket.send_fds(connection, ["\0".join(strings).encode(errors="surrogateescape")], [0, 1, 2])
        status = connection.recv(1)
    return status[0] if status else ABORTED


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2], socket.socket(fileno=int(sys.argv[3])), sys.argv[4:])
    else:
        sys.exit(call(sys.argv[1], sys.argv[2:]))
