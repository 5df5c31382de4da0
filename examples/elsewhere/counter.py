"""An agent in Python's standard library: counts to the number that the user names.

One JSON object comes on stdin; what the agent says goes to stdout, an object a
line, each flushed at once. What is printed to stderr is logged by the worker.
"""
import json
import re
import sys
import time


def say(kind, **data):
    print(json.dumps({"type": kind, **data}), flush=True)


def main():
    task = json.load(sys.stdin)
    found = re.search(r"\d+", task["input"])
    if not found:
        say("run.failed", message="name a number to count to")
        return
    n = int(found.group())
    pause = task.get("config", {}).get("pause", 0)
    print("counting to", n, "for", task["idempotency_key"], file=sys.stderr)

    say("reasoning.delta", delta=f"They want {n} numbers.")
    say("tool.started", call_id="count-" + task["run_id"], name="count", args={"to": n})
    say("state.snapshot", state={"counted": 0, "to": n})
    for i in range(1, n + 1):
        time.sleep(pause)
        say("tool.progress", call_id="count-" + task["run_id"], progress=i, total=n)
        say("state.delta", patch=[{"op": "replace", "path": "/counted", "value": i}])
    say("tool.completed", call_id="count-" + task["run_id"], content="done", structured={"counted": n})

    for i in range(1, n + 1):
        say("text.delta", delta=f"{i} ")
        time.sleep(pause)
    say("text.delta", delta="and that is all.")
    say("usage", input_tokens=len(task["input"].split()), output_tokens=n)
    say("run.completed")


main()
