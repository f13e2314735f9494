"""Small servers on loopback whose answers are scripted, for the clients of endpoints."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Reply:
    """One answer: status, body, headers; `cut` bytes are promised and not sent, `slow` comes after the test."""

    def __init__(self, body=None, status=200, headers=None, kind="application/json", cut=0, slow=False):
        self.status, self.headers, self.kind, self.cut, self.slow = status, headers or {}, kind, cut, slow
        self.body = body.encode() if isinstance(body, str) else b"" if body is None else json.dumps(body).encode()


@contextmanager
def serving(answer):
    """A server whose answers are `answer(path, body)`; yields its address and (path, headers, body) of each request."""
    requests, closing = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.path, dict(self.headers), body))
            reply = answer(self.path, body)
            if reply.slow:
                closing.wait(10)
            self.close_connection = reply.cut > 0
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body) + reply.cut))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    server.handle_error = lambda *_: None  # a client that gave up closes its end
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        closing.set()
        server.shutdown()
        server.server_close()


@contextmanager
def replying(*replies):
    """A server that gives the replies one after the other, the last for ever."""
    left = list(replies)
    with serving(lambda *_: left.pop(0) if len(left) > 1 else left[0]) as (url, requests):
        yield url, requests
