"""Each tutorial is followed literally, in an empty folder, against a provider on the loopback.

A block with a title is a file that the reader saves; a block of ``bash`` is typed; what the page
prints below it must be printed. The stand-in for the provider knows nothing but its prompt: it says
"Nuts." only if the prompt says who is allergic to them.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from scripts import free_port, wait_for

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
INSTALLED = re.compile(r"^(pip install|python3 -m venv) .*$", re.MULTILINE)
PAGES = sorted(path.stem for path in TUTORIALS.glob("*.md") if path.stem != "index")


def answer_to(messages: list[dict], tools: list[dict]) -> dict:
    """Return what a model would answer that reads its prompt and nothing else."""
    last, prompt = messages[-1]["content"], json.dumps(messages)
    if messages[-1]["role"] == "tool":
        pump, speed = re.findall(r"pump (\d+) at (\d+) rpm", last)[-1]
        return {"content": f"Pump {pump} runs at {speed} rpm."}
    if tools:
        given = json.dumps({"pump": int(re.search(r"pump (\d+)", last)[1])})
        call = {"name": tools[0]["function"]["name"], "arguments": given}
        return {"tool_calls": [{"id": f"call-{len(prompt)}", "type": "function", "function": call}]}
    if "sister not eat" in last:
        return {"content": "Nuts." if "allergic to nuts" in prompt else "I do not know."}
    if "Bern" in last:
        return {"content": "120 km" if "metric units" in prompt else "75 miles"}
    return {"content": "I see."}


class Completions(BaseHTTPRequestHandler):
    """Answers chat completions, and refuses what a provider refuses."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        waiting: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                waiting.remove(message["tool_call_id"])
            else:
                assert not waiting, "a call without its result"
                waiting |= {call["id"] for call in message.get("tool_calls") or ()}
        answer = answer_to(body["messages"], body.get("tools", []))
        reason = "tool_calls" if "tool_calls" in answer else "stop"
        choice = {
            "index": 0,
            "finish_reason": reason,
            "message": {"role": "assistant", "content": None, **answer},
        }
        sent = json.dumps(
            {"id": "c", "object": "chat.completion", "created": 0, "model": body["model"],
             "choices": [choice]}
        ).encode()  # fmt: skip
        self.send_response(200 if self.headers["Authorization"] == "Bearer sk-your-key" else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_: object) -> None:
        """Write no line for each request."""


@pytest.fixture
def environment():
    """Return the environment of a reader whose provider is on the loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Completions) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {
            **os.environ, "NO_COLOR": "1", "OPENAI_API_KEY": "sk-your-key",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        server.shutdown()


#: The command, in a process that has the library loaded.
COMMAND = "from hiermem.cli.app import app; app()"
CAPTURED = {"capture_output": True, "text": True}


def expected(line: str) -> str:
    """Return a pattern of a printed line: an ellipsis stands for anything on it."""
    return "[^\n]*".join(re.escape(part.strip()) for part in line.split("…"))


@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial_ends_in_what_it_says(name, tmp_path, environment, scripts):
    """Broken, a newcomer's first ten minutes end in an error, or in another answer."""
    page, port, servers, printed, checked = TUTORIALS / f"{name}.md", free_port(), [], "", 0
    try:
        for language, title, text in BLOCK.findall(page.read_text("utf-8")):
            if title:
                (tmp_path / title).write_text(text, "utf-8")
            elif language == "text":
                for line in text.splitlines():
                    assert re.search(expected(line), printed), f"{line!r} is not in:\n{printed}"
                    checked += 1
            elif language == "bash":
                typed = INSTALLED.sub("", text)
                typed = typed.replace("8000", str(port)).replace("localhost", "127.0.0.1")
                words = ["bash", "-euo", "pipefail", "-c", typed]
                if typed.startswith("uvicorn"):
                    servers.append(subprocess.Popen(words, cwd=tmp_path, env=environment))
                    wait_for(port)
                    continue
                if re.fullmatch(r"hiermem [^\n]+\n", typed):
                    words = ["-c", COMMAND, *shlex.split(typed)[1:]]
                    done = scripts.run(*words, cwd=tmp_path, env=environment)
                else:
                    how = {"cwd": tmp_path, "env": environment}
                    done = subprocess.run(words, check=False, **CAPTURED, **how)
                assert done.returncode == 0, done.stdout + done.stderr
                printed = done.stdout + done.stderr
        assert checked, "the page shows nothing of what is printed"
    finally:
        for server in servers:
            server.terminate()
            server.wait(20)


@pytest.mark.parametrize("name", ["chat-loop", "agent"])
def test_a_reader_without_a_key_gets_an_answer_of_the_stand_in(name, tmp_path, environment):
    """Broken, whoever has no key ends in a traceback of the provider's client."""
    blocks, port = BLOCK.findall((TUTORIALS / f"{name}.md").read_text("utf-8")), free_port()
    title, program = next((title, text) for _, title, text in blocks if title)
    (tmp_path / title).write_text(program, "utf-8")
    words = [sys.executable, str(TUTORIALS.parents[1] / "examples" / "stand_in.py"), str(port)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        given = dict(re.findall(r"(OPENAI_\w+)=(\S+)", server.stdout.readline()))
        words, where = [sys.executable, title, "How fast is pump 3?"], environment | given
        done = subprocess.run(
            words, **CAPTURED, check=True, cwd=tmp_path, env=where, input="How fast is pump 3?\n"
        )
    finally:
        server.terminate()
        server.communicate(timeout=20)
    assert re.search(r"I was sent \d+ messages\.", done.stdout), done.stdout
