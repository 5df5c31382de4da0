"""A client of POST /rpc with Python's standard library: http.client, and readline.

It reads jobs from its standard input, one JSON object a line, does each on a thread
and a connection of its own, and prints what it ended up with:

    {"n":1,"urls":["http://…",…],"params":{… of agent.invoke},"slow":0}  ->  {"n":1,"state":{…}}
"""
import http.client
import json
import sys
import threading
import time
from urllib.parse import urlsplit


class Run:
    """A run, as far as its lines were read."""

    def __init__(self, job):
        self.urls, self.params, self.slow = job["urls"], job["params"], job["slow"] / 1000
        self.run_id = self.after = self.end = None
        self.types, self.ids, self.calls, self.results = [], [], [], []
        self.deltas, self.whole, self.bad = {}, {}, 0

    def follow(self):
        """Reads to the answer, attaching again wherever the stream breaks off."""
        for tries in range(50):
            try:
                self.read(self.urls[tries % len(self.urls)])
            except (OSError, http.client.HTTPException):
                pass  # the connection was lost: the run was not
            if self.end is not None:
                break
            time.sleep(0.01)
        else:
            raise OSError("the run has no end")
        return {"types": self.types, "ids": self.ids, "deltas": self.deltas, "whole": self.whole,
                "calls": self.calls, "results": self.results, "bad": self.bad, "end": self.end}

    def read(self, url):
        connection = http.client.HTTPConnection(urlsplit(url).netloc)
        try:
            if self.after is None:
                method, params = "agent.invoke", self.params
            else:
                method, params = "agent.attach", {"run_id": self.run_id, "after": self.after}
                if "config" in self.params:
                    params["config"] = self.params["config"]
            call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            connection.request("POST", "/rpc", json.dumps(call), {"Content-Type": "application/json"})
            response = connection.getresponse()
            while self.end is None:
                line = response.readline()
                if not line.endswith(b"\n"):
                    return  # broken off, perhaps in the middle of a line
                time.sleep(self.slow)
                self.take(json.loads(line))
        finally:
            connection.close()

    def take(self, line):
        if "method" not in line:
            error = line.get("error")
            self.end = f"error {error['code']} {error['message']}" if error else line["result"]["status"]
            return
        e = line["params"]
        self.bad += sum(not e.get(name) for name in ("event_id", "trace_id", "session_id", "created_at"))
        if e["type"] == "heartbeat":
            return
        self.types.append(e["type"])
        self.ids.append(e["event_id"])
        self.after = e["event_id"]
        match e["type"]:
            case "session_started":
                self.run_id = e["run_id"]
            case "message_before":
                self.deltas[e["message_id"]] = self.deltas.get(e["message_id"], "") + e["delta"]
            case "message_discarded":
                self.deltas.pop(e["message_id"], None)
                self.whole.pop(e["message_id"], None)
            case "message_after":
                self.whole[e["message_id"]] = e["text"]
            case "tool_call":
                self.calls.append(f"{e['call_id']} {e['name']}")
            case "tool_result":
                self.results.append(f"{e['call_id']} {e['status']}")


printing = threading.Lock()


def do(job):
    try:
        answer = {"n": job["n"], "state": Run(job).follow()}
    except Exception as e:  # whatever it is, the test has to know
        answer = {"n": job["n"], "failed": repr(e)}
    with printing:
        print(json.dumps(answer), flush=True)


for text in sys.stdin:
    threading.Thread(target=do, args=(json.loads(text),)).start()
