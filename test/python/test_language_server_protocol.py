# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The language server by the bytes of its protocol: editors of all kinds, broken sessions, and the ends of them."""

from __future__ import annotations

import os
import random
import signal
import time
from importlib import resources
from pathlib import Path

import pytest
from language_client import EDITORS, URI, Client, client
from patience import HANG_SECONDS
from test_language_server import chain
from test_language_server_names import broken

from spyre_mlir.language_server import server
from spyre_mlir.language_server.server import CompilerProcess, CompilerProcessError

ERROR = 'func.func @f(%a: i32) -> i32 attributes {s = "😀é"} { return %q : i32 }\n'


def are_alive(processes: list[int]) -> bool:
    return any(os.path.exists(f"/proc/{process}") for process in processes)


def wait_for_the_end(processes: list[int]) -> None:
    """Wait until no process is left, as long as a machine with much else to do may take."""
    for _ in range(1200):
        if not are_alive(processes):
            return
        time.sleep(0.05)
    raise AssertionError(f"{processes} are left")


@pytest.mark.parametrize("editor", EDITORS)
def test_answers_have_the_form_and_the_units_that_the_editor_knows(editor):
    with client(editor=editor) as talk:
        (error,) = talk.open(ERROR)
        encoding = talk.capabilities["positionEncoding"]
        codec, size = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}[
            encoding
        ]
        begin = len(ERROR[: ERROR.index("%q")].encode(codec)) // size
        assert error["range"]["start"] == {"line": 0, "character": begin}
        assert error["range"]["end"] == {"line": 0, "character": begin + 2}
        talk.change(chain(2), 2)
        hover = talk.at("hover", 2, 3)["contents"]
        (function, *rest) = talk.of("documentSymbol")
        if editor == "Eglot without Markdown":
            assert hover["kind"] == "plaintext" and not {"`", "*"} & set(hover["value"])
        else:
            assert hover["kind"] == "markdown" and hover["value"].startswith("```mlir\n%v0 = linalg.exp")
        if editor in ("VS Code", "Neovim"):
            assert rest == [] and [child["name"] for child in function["children"]] == [
                "%x",
                "%e",
                "%v0",
                "%v1",
            ]
        else:
            assert "children" not in function and function["location"]["uri"] == URI
            assert [symbol["containerName"] for symbol in rest] == ["@main"] * 4
        assert talk.end() == 0


def test_a_second_definition_is_an_error_that_names_the_first():
    text = "func.func private @f()\nfunc.func private @f()\n"
    with client(editor="VS Code") as talk:
        (error,) = talk.open(text)
        (related,) = error["relatedInformation"]
        assert error["range"]["start"]["line"] == 1
        assert (related["location"]["uri"], related["location"]["range"]["start"]["line"]) == (URI, 0)
        # The IR of the operation is not repeated: the range shows it.
        assert "see current operation" not in str(error)
    with client() as talk:
        (error,) = talk.open(text)
        assert "relatedInformation" not in error and "existing symbol" in error["message"]


def test_the_programs_of_a_file_with_several_are_apart():
    text = chain(2) + "// -----\n" + chain(3) + "// -----\n" + ERROR
    with client() as talk:
        (error,) = talk.open(text)
        assert error["range"]["start"]["line"] == text.count("\n") - 1
        lenses = [lens["command"]["arguments"] for lens in talk.of("codeLens")]
        second = next(arguments for arguments in lenses if arguments[2] == 7 and arguments[1] == "placed")
        command = {"command": "spyre.showLevel", "arguments": second}
        text = talk.ask("workspace/executeCommand", command)
        assert text.count("math.exp") == 3 and "// -----" not in text


def test_an_error_at_a_place_in_another_file_is_not_shown_at_that_line_of_this_one():
    with client() as talk:
        text = "func.func @f(%a: i32) -> i64 {\n  %b = arith.addi %a, %a : i32\n"
        (error,) = talk.open(text + '  "func.return"(%a) : (i32) -> () loc("model.py":2:3)\n}\n')
        assert error["message"].startswith("model.py:2:3: ") and error["range"]["start"]["line"] == 0


def test_errors_are_inside_of_the_text():
    with client() as talk:
        for number, text in enumerate(
            ["", "\n", "{", '"', "%", "x.y(", "(" * 300, "\0", "\r", "😀", "\ufeff{", "\ud800"]
        ):
            for error in talk.open(text, f"untitled:{number}"):
                start, end = error["range"]["start"], error["range"]["end"]
                assert start["line"] == end["line"] == 0
                units = len(text.encode("utf-16-le", "surrogatepass")) // 2
                assert 0 <= start["character"] <= end["character"] <= units
            assert talk.of("documentSymbol", f"untitled:{number}") == []


def test_only_the_text_that_there_is_has_diagnostics():
    with client() as talk:
        talk.open(chain(200))
        for version in range(2, 30):
            talk.change(chain(200).replace("ins(%v0 ", f"ins(%missing{version} "), version)
        (error,) = talk.published(version=29)
        assert error["range"]["end"]["character"] - error["range"]["start"]["character"] == len("%missing29")
        # A text that was there before has its diagnostics again.
        talk.change(chain(200), 30)
        assert talk.published(version=30) == []
        talk.tell("textDocument/didSave", {"textDocument": {"uri": URI}})
        assert talk.published(version=30) == []
        talk.tell("textDocument/didClose", {"textDocument": {"uri": URI}})
        assert talk.published() == []


def test_documents_are_known_by_their_names_whatever_these_are():
    with client() as talk:
        uris = [URI, "untitled:Untitled-1", "file:///elsewhere/%C3%A9%25.mlir"]
        for uri in uris:
            assert talk.open(chain(1), uri) == []
        for uri in uris:
            assert talk.at("definition", 2, 23, uri)["uri"] == uri
        for request in ("hover", "definition"):
            number = talk.begin(
                f"textDocument/{request}",
                {"textDocument": {"uri": "file:///other.mlir"}, "position": {"line": 0, "character": 0}},
            )
            error = talk.answer(number)["error"]
            assert (
                error["message"] == "The document 'file:///other.mlir' is not open." and "data" not in error
            )


def answers(talk: Client, uri: str) -> list[object]:
    places = [(line, column) for line in range(0, 40, 3) for column in (4, 20)]
    found = [talk.of("documentSymbol", uri), talk.of("foldingRange", uri), talk.of("codeLens", uri)]
    for line, column in places:
        for request in ("definition", "documentHighlight", "prepareRename", "completion"):
            found.append(talk.at(request, line, column, uri))
    return [str(answer).replace(uri, "") for answer in found]


@pytest.mark.parametrize("seed", range(2))
def test_an_edited_document_is_answered_as_one_that_was_opened_so(seed):
    random_ = random.Random(seed)
    with client(editor="VS Code") as talk:
        text, version = chain(30), 1
        first = talk.open(text), answers(talk, URI)
        for round_ in range(3):
            for _ in range(5):
                version, edited = version + 1, broken(text, random_)
                talk.change(edited, version)
            fresh = f"untitled:{round_}"
            assert talk.published(version=version) == talk.open(edited, fresh)
            assert answers(talk, URI) == answers(talk, fresh)
        talk.change(text, version + 1)
        assert (talk.published(version=version + 1), answers(talk, URI)) == first
        assert talk.end() == 0


def test_requests_that_there_are_not_are_refused_and_the_session_goes_on():
    with client() as talk:
        for method, parameters in (("textDocument/nothing", {}), ("$/nothing", None)):
            assert talk.answer(talk.begin(method, parameters))["error"]["code"] == -32601
        for arguments in ([URI, "nowhere", 0], [URI, "placed", 0], [1]):
            command = {"command": "spyre.showLevel", "arguments": arguments}
            assert talk.answer(talk.begin("workspace/executeCommand", command))["error"]["code"] == -32602
        talk.tell("workspace/didChangeConfiguration", {"settings": {}})
        talk.tell("$/setTrace", {"value": "off"})
        assert talk.open(chain(1)) == []


def test_a_message_that_is_broken_is_refused_and_the_session_goes_on():
    with client() as talk:
        for body, code in (
            (b"{", -32700),
            (b"\xff", -32700),
            (b"[" * 100_000, -32700),
            (b"[]", -32600),
            (b"1", -32600),
        ):
            talk.server.stdin.write(b"Content-Type: text\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
            talk.server.stdin.flush()
            assert talk.answer(None)["error"]["code"] == code
        place = {"line": 0, "character": 0}
        for parameters in (None, [], {}, {"textDocument": URI}, {"textDocument": {"uri": [URI]}, "position": place},
                           {"textDocument": {"uri": URI}, "position": {"line": "0"}}):  # fmt: skip
            assert talk.answer(talk.begin("textDocument/hover", parameters))["error"]["code"] == -32602
        # A notification has no answer, so the editor shows its fault.
        talk.tell("textDocument/didChange", {"textDocument": {"uri": URI}, "contentChanges": [{"text": ""}]})
        assert "is not open" in talk.read()["params"]["message"]
        assert talk.open(chain(1)) == []


def test_requests_outside_of_the_session_are_refused():
    with client(initialized=False) as talk:
        assert talk.answer(talk.begin("textDocument/hover", {}))["error"]["code"] == -32002
        assert "capabilities" in talk.ask("initialize", {"capabilities": {}})
        assert talk.ask("shutdown", None) is None
        assert talk.answer(talk.begin("textDocument/hover", {}))["error"]["code"] == -32600
        talk.tell("exit", None)
        assert talk.server.wait(60) == 0


def test_a_request_that_is_cancelled_ends():
    with client() as talk:
        talk.open(chain(300))
        command = {"command": "spyre.showLevel", "arguments": [URI, "placed", 0]}
        number = talk.begin("workspace/executeCommand", command)
        talk.tell("$/cancelRequest", {"id": number})
        assert talk.answer(number)["error"]["code"] == -32800
        assert talk.at("hover", 2, 3) is not None


def test_the_bindings_stay_out_of_the_server():
    with client() as talk:
        assert talk.open(ERROR) != [] and talk.at("hover", 0, 15) is not None
        with open(f"/proc/{talk.server.pid}/maps", encoding="utf-8") as file:
            assert "mlir_libs" not in file.read()


def test_the_processes_of_a_server_end_with_it_and_at_once():
    with client() as talk:
        talk.open(chain(3000))
        # The texts for the busy compiler process exceed the buffer of a pipe.
        for version in range(2, 6):
            talk.change(chain(3000 + version), version)
            talk.at("hover", 2, 3)
            talk.begin(
                "workspace/executeCommand", {"command": "spyre.showLevel", "arguments": [URI, "placed", 0]}
            )
        processes = talk.children()
        assert len(processes) >= 2 and talk.end() == 0
        wait_for_the_end(processes)


@pytest.mark.parametrize("end", ["kill", "close", "exit"])
def test_a_server_without_its_editor_leaves_no_process(end):
    with client() as talk:
        talk.open(chain(3000))
        processes = talk.children()
        assert len(processes) >= 2
        if end == "kill":
            talk.server.kill()
        elif end == "close":
            talk.server.stdin.close()
        else:
            talk.tell("exit", None)
        # The server ended without a shutdown request.
        assert talk.server.wait(HANG_SECONDS) == {"kill": -9, "close": 1, "exit": 1}[end]
        wait_for_the_end(processes)


#: A file whose text ends the process that checks it, so that the process dies within the check, however fast it is.
DEADLY = """
import os, signal
from spyre_mlir.language_server import decisions

check = decisions.diagnostics
decisions.diagnostics = lambda text: os.kill(os.getpid(), signal.SIGKILL) if "// dies" in text else check(text)
"""


def test_a_check_whose_process_dies_says_so_and_the_next_one_starts_another(tmp_path):
    path = tmp_path / "deadly.py"
    path.write_text(DEADLY, encoding="utf-8")
    with client("--load", str(path)) as talk:
        assert talk.open(chain(1)) == []
        for version in (2, 4):
            talk.change(chain(2) + "// dies\n", version)
            (error,) = talk.published(version=version)
            assert error["message"] == "The check of this text failed: the process ended with the status -9."
            talk.change(chain(3), version + 1)
            assert talk.published(version=version + 1) == []


def test_a_check_after_the_death_of_an_idle_process_is_made_by_another():
    with client() as talk:
        assert talk.open(chain(1)) == []
        processes = [process for process in talk.children() if "spawn_main" in command_line(process)]
        for process in processes:
            os.kill(process, signal.SIGKILL)
        while any(is_running(process) for process in processes):
            time.sleep(0.01)
        talk.change(ERROR, 2)
        (error,) = talk.published(version=2)
        assert error["message"] == "use of undeclared SSA value name"


def command_line(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8")


def is_running(process: int) -> bool:
    """Return whether a process runs: an ended process is the last of its threads, and a zombie of its parent."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
        return state != "Z" or len(os.listdir(f"/proc/{process}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("failure", ["start", "answer"])
def test_a_call_whose_process_cannot_start_or_answer_fails_and_the_next_one_succeeds(failure, monkeypatch):
    process = CompilerProcess(print, (), niceness=0)
    try:
        with monkeypatch.context() as patch:
            if failure == "start":
                patch.setattr(server._SPAWN, "Process", refuse)
            with pytest.raises(
                CompilerProcessError, match="cannot allocate" if failure == "start" else "Unread"
            ):
                process.call(Unreadable if failure == "answer" else len, "text").result(HANG_SECONDS)
        assert process.call(len, "text").result(HANG_SECONDS) == 4
    finally:
        process.end()


def refuse(**_: object) -> None:
    raise OSError("cannot allocate memory")


class Unreadable:
    """An answer that the server cannot unpickle."""

    def __init__(self, text: str, is_read: bool = False) -> None:
        if is_read:
            raise KeyError("Unread")

    def __reduce__(self):
        return Unreadable, ("text", True)


def test_a_file_that_is_loaded_may_print(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text('print("loaded")\n', encoding="utf-8")
    with client("--load", str(path)) as talk:
        assert talk.open(chain(1)) == []
        assert talk.end() == 0


def test_the_device_of_the_server_is_that_of_its_plans(tmp_path):
    path = tmp_path / "device.toml"
    packaged = resources.files("spyre_mlir.target").joinpath("spyre.toml").read_text(encoding="utf-8")
    path.write_text(packaged.replace("[cores]\n", "[cores]\nusable = 4\n"), encoding="utf-8")
    with client("--device", str(path)) as talk:
        talk.open(chain(1))
        lens = {"command": "spyre.showLevel", "arguments": [URI, "placed", 0]}
        assert "sdsc.division<[4, 1]" in talk.ask("workspace/executeCommand", lens)
