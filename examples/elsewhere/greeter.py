"""A server of AG-UI in Python's standard library: python3 greeter.py [port]

One POST of a RunAgentInput is one run; its events come back as server-sent
events. Frameworks (LangGraph, CrewAI, Mastra, ADK …) have servers like it.
"""
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Greeter(BaseHTTPRequestHandler):
    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        ids = {"threadId": task["threadId"], "runId": task["runId"]}
        said = [m["content"] for m in task["messages"] if m["role"] == "user"][-1]
        words = f"Hello! You said: {said} That makes {len(said.split())} words.".split(" ")

        self.emit("RUN_STARTED", **ids)
        self.emit("TOOL_CALL_START", toolCallId="count-" + task["runId"], toolCallName="count_words")
        self.emit("TOOL_CALL_ARGS", toolCallId="count-" + task["runId"], delta=json.dumps({"text": said}))
        self.emit("TOOL_CALL_END", toolCallId="count-" + task["runId"])
        self.emit("TOOL_CALL_RESULT", messageId="counted-" + task["runId"], toolCallId="count-" + task["runId"], content=str(len(said.split())))
        message = "greeting-" + task["runId"]
        self.emit("TEXT_MESSAGE_START", messageId=message, role="assistant")
        for i, word in enumerate(words):
            self.emit("TEXT_MESSAGE_CONTENT", messageId=message, delta=word if i == 0 else " " + word)
            time.sleep(0.05)
        self.emit("TEXT_MESSAGE_END", messageId=message)
        self.emit("RUN_FINISHED", **ids)

    def emit(self, kind, **data):
        self.wfile.write(f"data: {json.dumps({'type': kind, **data})}\n\n".encode())

    def log_message(self, *args):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8901
    print(f"greeter on http://127.0.0.1:{port}/greeter", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Greeter).serve_forever()
