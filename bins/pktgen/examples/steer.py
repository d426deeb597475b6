#!/usr/bin/env python3
"""Steers a run of pktgen over its control socket. Python's standard library is all that it needs.

    pktgen run A B --rate 10k --control /tmp/pktgen.sock
    steer.py /tmp/pktgen.sock get "set rate=20k" clear "wait received=1000" stop quit

Each argument after the socket (a path, or ADDRESS:PORT) is a request and its fields; "wait NAME=COUNT" asks for figures until
each direction has as many as COUNT of NAME. In a program of your own:

    with Run("/tmp/pktgen.sock") as run:
        run.ask("set", rate="20k")
        print(run.figures()["directions"][0]["loss_percent"])
"""

import json
import socket
import sys
import time


class Run:
    """A connection to a run."""

    def __init__(self, address):
        host, _, port = address.rpartition(":")
        if "/" not in address and port.isdigit():
            self.socket = socket.create_connection((host.strip("[]"), int(port)))
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(address)
        self.lines = self.socket.makefile("r", encoding="utf-8")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, do, **fields):
        """Sends a request and returns the answer; what is refused is an error."""
        self.socket.sendall((json.dumps({"do": do, **fields}) + "\n").encode())
        for line in self.lines:
            answer = json.loads(line)
            # Events come between answers, where they are subscribed to.
            if "event" not in answer:
                if not answer["ok"]:
                    raise ValueError(answer["error"])
                return answer
        raise ConnectionError("the run has ended")

    def figures(self):
        """Returns the figures now."""
        return self.ask("get")["figures"]


def show(figures):
    """Prints a line for each direction."""
    for one in figures["directions"]:
        asked = one["intended_pps"]
        rate = "no limit" if asked is None else f"{asked:,.0f} pps asked"
        known = {name: one[name] for name in ("sent", "received", "lost", "under_way") if one[name] is not None}
        counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in known.items())
        print(f"{one['from']} > {one['to']}: {rate}, {counts}")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with Run(sys.argv[1]) as run:
        for words in sys.argv[2:]:
            do, *pairs = words.split()
            fields = dict(pair.split("=", 1) for pair in pairs)
            if do == "wait":
                while not all((one[name] or 0) >= int(count) for one in run.figures()["directions"] for name, count in fields.items()):
                    time.sleep(0.05)
            elif do == "get":
                show(run.figures())
            else:
                if "interval" in fields:
                    fields["interval"] = float(fields["interval"])
                run.ask(do, **fields)


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"steer.py: {error}")
