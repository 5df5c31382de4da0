"""An old client of ?dialect=v1 with Python's standard library.

It reads jobs from its standard input, one JSON object a line, follows each stream on a
thread of its own, and prints what it ended up with:

    {"n":1,"url":"http://…","path":"/v1/runs/…/events?dialect=v1"}  ->  {"n":1,"state":{…}}
"""
import http.client
import json
import sys
import threading
import time
from urllib.parse import urlsplit


class Answer:
    """What there is to show, and the id of the last message."""

    def __init__(self):
        self.last = ""
        self.texts, self.tools, self.files, self.error, self.end = {}, {}, [], None, None

    def follow(self, job):
        for _ in range(50):
            try:
                self.read(job)
            except (OSError, http.client.HTTPException):
                pass  # the connection was lost: the run was not
            if self.end is not None:
                return {"texts": self.texts, "tools": self.tools, "files": self.files, "error": self.error, "end": self.end}
            time.sleep(0.01)
        raise OSError("the run has no end")

    def read(self, job):
        connection = http.client.HTTPConnection(urlsplit(job["url"]).netloc)
        try:
            headers = {"Accept": "text/event-stream"}
            if self.last:
                headers["Last-Event-ID"] = self.last
            connection.request("GET", job["path"], headers=headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ValueError(f"{response.status}: {response.read()!r}")
            event = {}
            while self.end is None:
                line = response.readline()
                if not line.endswith(b"\n"):
                    return  # broken off, perhaps in the middle of a line
                field, _, value = line.rstrip(b"\n").partition(b": ")
                if line == b"\n":
                    self.take(event)
                    event = {}
                elif field:
                    event[field.decode()] = value.decode()
        finally:
            connection.close()

    def take(self, event):
        if "data" not in event:
            return
        self.last = event.get("id", self.last)
        e = json.loads(event["data"])
        match e["type"]:
            case "text_delta":
                self.texts[e["message_id"]] = self.texts.get(e["message_id"], "") + e["text"]
            case "text_reset":
                self.texts.pop(e["message_id"], None)
            case "tool_start":
                self.tools.setdefault(e["id"], []).append(f"{e['name']} {json.dumps(e['args'], sort_keys=True)}")
            case "tool_end":
                self.tools.setdefault(e["id"], []).append(f"{'ok' if e['ok'] else 'failed'} {e['result']}")
            case "artifact":
                self.files.append(f"{e['name']} {e['url']}")
            case "error":
                self.error = f"{e['code']}: {e['message']}"
            case "done":
                self.end = e["status"]


printing = threading.Lock()


def do(job):
    try:
        answer = {"n": job["n"], "state": Answer().follow(job)}
    except Exception as e:  # whatever it is, the test has to know
        answer = {"n": job["n"], "failed": repr(e)}
    with printing:
        print(json.dumps(answer), flush=True)


for text in sys.stdin:
    threading.Thread(target=do, args=(json.loads(text),)).start()
